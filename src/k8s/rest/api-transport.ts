/** A request to an API server. */
export interface ApiRequest {
  /** Default `GET`. */
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | undefined;
  /** Path and query: `/api/v1/pods?limit=500`. */
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Content type of the body. Default `application/json`. */
  readonly contentType?: string | undefined;
  /** If true, the response may be compressed. The body is always decompressed. */
  readonly gzip?: boolean | undefined;
  /** Cancels the request, also while the body is read. */
  readonly signal: AbortSignal;
}

/** The response to an {@link ApiRequest}, with a streamed body. */
export interface ApiAnswer {
  readonly status: number;
  /** Delay requested by the server, in milliseconds; 0 if none. */
  readonly retryAfterMs: number;
  /**
   * The body. The caller must read it to its end or abort the request's signal. A chunk is valid until the next chunk
   * is requested. If the connection breaks, the iteration throws.
   */
  readonly body: AsyncIterable<Uint8Array>;
  /** The token or password that the request has sent. It is removed from an error, because a server may repeat it. */
  readonly secret?: string | undefined;
}

/**
 * The connection to one API server, shared by all clients. It sends requests with credentials. It does not retry. It
 * limits only the time of a connection attempt; callers limit the time of their requests.
 */
export interface ApiTransport {
  /** Rejects with an ApiError if there is no response. A response of any status resolves. */
  send(request: ApiRequest): Promise<ApiAnswer>;
  /** Closes all connections. Running requests fail as `unreachable`; new requests connect again. */
  reset(): void;
  close(): Promise<void>;
}

const MAX_TEXT_LENGTH = 1024 * 1024;

/** Returns the body as text. Drops the characters after the first `maxLength`, and stops reading there. */
export async function textOf(
  body: AsyncIterable<Uint8Array>,
  maxLength: number = MAX_TEXT_LENGTH,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    if (text.length > maxLength) break;
  }
  return text.slice(0, maxLength);
}
