import { ByteStream } from '../../../src/k8s/memory/byte-stream.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { settle } from '../../kvstore/support/settle.ts';

/** The purpose of a reflector's request: see `ReflectorEffect`. */
export type Asked = 'stream' | 'list' | 'watch' | 'prove';

function whatOf({ searchParams: query }: URL): Asked {
  if (query.has('sendInitialEvents')) return 'stream';
  if (query.has('watch')) return 'watch';
  return query.get('fieldSelector')?.includes('metadata.name=') ? 'prove' : 'list';
}

/** A request whose answer a test gives piece by piece. */
export class AskedRequest {
  readonly what: Asked;
  readonly query: URLSearchParams;
  readonly gzip: boolean;
  readonly signal: AbortSignal;
  readonly answered: Promise<ApiAnswer>;
  readonly #body = new ByteStream(
    async () => {},
    () => {},
  );
  #answer: (answer: ApiAnswer) => void = () => {};

  constructor({ path, gzip = false, signal }: ApiRequest) {
    const url = new URL(path, 'http://server');
    this.what = whatOf(url);
    this.query = url.searchParams;
    this.gzip = gzip;
    this.signal = signal;
    this.answered = new Promise((resolve) => {
      this.#answer = resolve;
    });
  }

  /** Accepts the request. The content follows. */
  open(): void {
    this.#answer({ status: 200, retryAfterMs: 0, body: this.#body });
  }

  /** Sends values, one per line, as the content of an accepted request. */
  async say(...values: readonly unknown[]): Promise<void> {
    await this.write(values.map((value) => `${JSON.stringify(value)}\n`).join(''));
  }

  async write(text: string): Promise<void> {
    this.open();
    this.#body.write(text);
    await settle();
  }

  /** Ends the answer properly. */
  async end(): Promise<void> {
    this.#body.end();
    await settle();
  }

  async cut(): Promise<void> {
    this.#body.break(new Error('cut'));
    await settle();
  }

  /** Answers with a complete list. */
  async list(version: string, items: readonly unknown[], token?: string): Promise<void> {
    await this.write(JSON.stringify({ metadata: { resourceVersion: version, continue: token }, items }));
    await this.end();
  }

  async refuse(status: number, message = 'no', retryAfterMs = 0): Promise<void> {
    this.#body.write(JSON.stringify({ kind: 'Status', code: status, message }));
    this.#body.end();
    this.#answer({ status, retryAfterMs, body: this.#body });
    await settle();
  }
}

/** An API server controlled by a test: it takes one request after the other, and answers as the test says. */
export class ScriptedApi implements ApiTransport {
  readonly #waiting: AskedRequest[] = [];

  send(request: ApiRequest): Promise<ApiAnswer> {
    const asked = new AskedRequest(request);
    this.#waiting.push(asked);
    return asked.answered;
  }

  /** Returns the next request, which must be the only one and have this purpose. */
  async takes(what: Asked): Promise<AskedRequest> {
    await settle();
    const asked = this.#waiting.splice(0);
    const [first] = asked;
    const whats = asked.map((one) => one.what).join();
    if (first === undefined || whats !== what) throw new Error(`asked for '${whats}', not for '${what}'`);
    return first;
  }

  /** Number of waiting requests. */
  get waiting(): number {
    return this.#waiting.length;
  }

  reset(): void {}

  async close(): Promise<void> {}
}
