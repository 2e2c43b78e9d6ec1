/** A request to an API server. */
export interface ApiRequest {
  /** Default `GET`. */
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | undefined;
  /** Path and query: `/api/v1/pods?limit=500`. */
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Of the body. Default `application/json`. */
  readonly contentType?: string | undefined;
  /** Whether the answer may come compressed; the body is what was compressed in any case. */
  readonly gzip?: boolean | undefined;
  /** Gives up, also on the body of an answer. */
  readonly signal: AbortSignal;
}

/** The answer to an {@link ApiRequest}, its body on the way. */
export interface ApiAnswer {
  readonly status: number;
  /** What the server asks for; 0 if nothing. */
  readonly retryAfterMs: number;
  /**
   * To be read to its end, or the request's signal is to fire. A piece is the reader's until it asks for the next. Throws
   * where the connection breaks.
   */
  readonly body: AsyncIterable<Uint8Array>;
}

/**
 * The way to one API server, shared by all who ask it. It carries requests and answers, with credentials; it retries
 * nothing and has no deadline but that for a connection: those who ask know how long they can wait.
 */
export interface ApiTransport {
  /** Rejects with an ApiError if there is no answer; any status is an answer. */
  send(request: ApiRequest): Promise<ApiAnswer>;
  /** Ends all connections: requests under way break, new ones connect anew. */
  reset(): void;
  close(): Promise<void>;
}

const LONGEST_TEXT = 1024 * 1024;

/**
 * The body as text.
 *
 * @param most characters: what comes after them is left out. Default: a MiB
 */
export async function textOf(body: AsyncIterable<Uint8Array>, most: number = LONGEST_TEXT): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    if (text.length > most) break;
  }
  return text.slice(0, most);
}
