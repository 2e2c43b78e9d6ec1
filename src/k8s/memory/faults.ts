/** A request as an API server receives it. */
export interface ServedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** Value of the header `Authorization`; empty if absent. */
  readonly authorization: string;
  readonly contentType: string;
  /** The body as text; empty if absent. */
  readonly body: string;
  /** Aborts when the client no longer waits for the response. */
  readonly closed: AbortSignal;
}

/** A response with a streamed body. */
export interface ServedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Throws if the connection must break. */
  readonly body: AsyncIterable<Uint8Array>;
  /** True for a watch. Its chunks must be flushed immediately. */
  readonly isStream: boolean;
}

/** A fault to inject. */
export type ApiFault =
  /** Sends this response instead, such as HTML, truncated JSON, or a text with status 429. */
  | {
      readonly do: 'answer';
      readonly status: number;
      readonly body: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** Accepts a watch, sends these lines, and ends it cleanly. */
  | { readonly do: 'lines'; readonly lines: readonly unknown[] }
  /** Never responds. */
  | { readonly do: 'hang' }
  /** Breaks the connection before a response. */
  | { readonly do: 'refuse' }
  /** Breaks the connection, or ends the response as if it were complete, after this number of bytes. */
  | { readonly do: 'cut' | 'end'; readonly afterBytes: number }
  /** Sends the response in chunks of this size. */
  | { readonly do: 'pieces'; readonly bytes: number };

/** The requests that a fault applies to. Default: the next request. */
export interface FaultScope {
  /** Default: all requests match. */
  readonly matches?: ((request: ServedRequest) => boolean) | undefined;
  /** Number of matching requests. Default: 1. */
  readonly times?: number | undefined;
}

/** A fault, and the requests to which it still applies. */
interface InjectedFault {
  readonly fault: ApiFault;
  readonly matches: (request: ServedRequest) => boolean;
  remaining: number;
}

/** The connection broke before or during a response. */
export class ConnectionBroken extends Error {
  override readonly name = 'ConnectionBroken';

  constructor() {
    super('connection reset');
  }
}

const encoder = new TextEncoder();

/** Yields a body from complete texts. */
export async function* textBody(...texts: readonly string[]): AsyncGenerator<Uint8Array, void, void> {
  for (const text of texts) yield encoder.encode(text);
}

async function* shortened(
  body: AsyncIterable<Uint8Array>,
  fault: 'cut' | 'end',
  bytes: number,
): AsyncGenerator<Uint8Array, void, void> {
  let remaining = bytes;
  for await (const chunk of body) {
    if (chunk.length >= remaining) {
      yield chunk.subarray(0, remaining);
      if (fault === 'end') return;
      throw new ConnectionBroken();
    }
    remaining -= chunk.length;
    yield chunk;
  }
}

async function* inPieces(
  body: AsyncIterable<Uint8Array>,
  bytes: number,
): AsyncGenerator<Uint8Array, void, void> {
  for await (const chunk of body)
    for (let from = 0; from < chunk.length; from += bytes) yield chunk.subarray(from, from + bytes);
}

/** Injected faults, until they have occurred. */
export class Faults {
  readonly #injected: InjectedFault[] = [];

  /** Applies a fault to the next matching requests. If several faults match, the one injected first is applied. */
  inject(fault: ApiFault, { matches = () => true, times = 1 }: FaultScope = {}): void {
    this.#injected.push({ fault, matches, remaining: times });
  }

  /** Removes all faults. */
  clear(): void {
    this.#injected.length = 0;
  }

  /** Serves a request with the first matching fault, if any. */
  async serve(request: ServedRequest, serve: () => Promise<ServedAnswer>): Promise<ServedAnswer> {
    const fault = this.#nextFault(request);
    if (fault === undefined) return serve();
    switch (fault.do) {
      case 'answer': {
        const { status, body, headers = {} } = fault;
        return { status, headers, body: textBody(body), isStream: false };
      }
      case 'lines': {
        const lines = fault.lines.map((line) => `${JSON.stringify(line)}\n`);
        return { status: 200, headers: {}, body: textBody(...lines), isStream: true };
      }
      case 'hang':
        return new Promise(() => {});
      case 'refuse':
        throw new ConnectionBroken();
      case 'pieces': {
        const answer = await serve();
        return { ...answer, body: inPieces(answer.body, fault.bytes) };
      }
      default: {
        const answer = await serve();
        return { ...answer, body: shortened(answer.body, fault.do, fault.afterBytes) };
      }
    }
  }

  #nextFault(request: ServedRequest): ApiFault | undefined {
    const at = this.#injected.findIndex(({ matches }) => matches(request));
    const next = this.#injected[at];
    if (next === undefined) return undefined;
    next.remaining--;
    if (next.remaining === 0) this.#injected.splice(at, 1);
    return next.fault;
  }
}
