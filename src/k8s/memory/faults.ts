/** A request as an API server receives it. */
export interface ServedRequest {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** Of the header `Authorization`; empty without. */
  readonly authorization: string;
  readonly contentType: string;
  /** As text; empty without. */
  readonly body: string;
  /** Fires when the answer is not waited for any more. */
  readonly gone: AbortSignal;
}

/** What is answered, its body on the way. */
export interface ServedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Throws where the connection is to break. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Whether it goes on, and so must not wait for more. */
  readonly isStream: boolean;
}

/** What is done wrong to order. */
export type ApiFault =
  /** Answers this instead: HTML, half a JSON, a text with 429. */
  | {
      readonly do: 'answer';
      readonly status: number;
      readonly body: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** Accepts a watch, says these lines, and ends it in order. */
  | { readonly do: 'lines'; readonly lines: readonly unknown[] }
  /** Never answers. */
  | { readonly do: 'hang' }
  /** The connection breaks before an answer. */
  | { readonly do: 'refuse' }
  /** The connection breaks, or the answer ends as if complete, after so many bytes. */
  | { readonly do: 'cut' | 'end'; readonly afterBytes: number }
  /** The answer comes in pieces of so many bytes. */
  | { readonly do: 'pieces'; readonly bytes: number };

/** Which requests a fault is for; default all. */
export interface FaultOrder {
  readonly matches?: (request: ServedRequest) => boolean;
  /** Default 1. */
  readonly times?: number;
}

interface Order {
  readonly fault: ApiFault;
  readonly matches: (request: ServedRequest) => boolean;
  left: number;
}

/** The connection breaks: no answer, or only a part of one. */
export class ConnectionBroken extends Error {
  override readonly name = 'ConnectionBroken';

  constructor() {
    super('the connection was broken');
  }
}

const encoder = new TextEncoder();

/** A body that is there at once. */
export async function* bodyOf(...texts: readonly string[]): AsyncGenerator<Uint8Array, void, void> {
  for (const text of texts) yield encoder.encode(text);
}

async function* shortened(
  body: AsyncIterable<Uint8Array>,
  fault: 'cut' | 'end',
  bytes: number,
): AsyncGenerator<Uint8Array, void, void> {
  let left = bytes;
  for await (const chunk of body) {
    if (chunk.length >= left) {
      yield chunk.subarray(0, left);
      if (fault === 'end') return;
      throw new ConnectionBroken();
    }
    left -= chunk.length;
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

/** Faults that were ordered and have not happened. */
export class Faults {
  readonly #orders: Order[] = [];

  /** The next requests that match get this fault; orders are served first come, first served. */
  order(fault: ApiFault, { matches = () => true, times = 1 }: FaultOrder = {}): void {
    this.#orders.push({ fault, matches, left: times });
  }

  /** Everything is served well again. */
  clear(): void {
    this.#orders.length = 0;
  }

  /** Serves a request, wrongly if that is ordered. */
  async serve(request: ServedRequest, serve: () => Promise<ServedAnswer>): Promise<ServedAnswer> {
    const fault = this.#take(request);
    if (fault === undefined) return serve();
    switch (fault.do) {
      case 'answer': {
        const { status, body, headers = {} } = fault;
        return { status, headers, body: bodyOf(body), isStream: false };
      }
      case 'lines': {
        const lines = fault.lines.map((line) => `${JSON.stringify(line)}\n`);
        return { status: 200, headers: {}, body: bodyOf(...lines), isStream: true };
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

  #take(request: ServedRequest): ApiFault | undefined {
    const at = this.#orders.findIndex(({ matches }) => matches(request));
    const order = this.#orders[at];
    if (order === undefined) return undefined;
    if (--order.left === 0) this.#orders.splice(at, 1);
    return order.fault;
  }
}
