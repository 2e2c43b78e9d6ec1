import { KvstoreError } from '../errors.ts';
import { prefixRange } from '../key-range.ts';
import type {
  CallOptions,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../transport.ts';
import type { EtcdStream } from './etcd-connection.ts';
import type { EtcdEndpoint } from './etcd-endpoint.ts';
import { codeOfMessage, etcdError } from './etcd-errors.ts';
import { decodeWatch, encodeWatchCreate, encodeWatchProgress, type WatchAnswer } from './messages.ts';

// About a millisecond of decoding, between which others get their turn.
const SLICE_EVENTS = 512;

/** How an {@link EtcdWatchStream} is opened, and what it needs of its transport. */
export interface EtcdWatchOptions {
  /** Let the server split an answer that would be too large. */
  readonly fragment: boolean;
  /** Reads from the endpoint of the stream. */
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  /** Receives why it has ended, and gives what the observer receives. */
  onEnd(error: KvstoreError): KvstoreError;
}

/** One watch on a stream of its own, so that it can be paused without holding back others. */
export class EtcdWatchStream implements WatchStream {
  readonly #observer: WatchObserver;
  readonly #options: EtcdWatchOptions;
  /** Ends the wait for the server's acceptance, which may never come with a token from before a restore. */
  readonly #accepted: () => void;
  #stream: EtcdStream | undefined;
  /** The answer whose events are being delivered. */
  #telling: WatchAnswer | undefined;
  #turn: NodeJS.Immediate | undefined;
  #paused = false;
  /** A message was asked for and has not come. */
  #reading = false;
  #arrived: Buffer | undefined;
  #ended = false;
  #progressRequested = 0;

  constructor(
    endpoint: EtcdEndpoint,
    request: WatchRequest,
    observer: WatchObserver,
    options: EtcdWatchOptions,
  ) {
    this.#observer = observer;
    this.#options = options;
    this.#accepted = endpoint.deadline(undefined, () => {
      this.#end(new KvstoreError('deadline', 'the watch was not accepted in time'));
    });
    const create = encodeWatchCreate(prefixRange(request.prefix), request.startRevision, options.fragment);
    const receiver = {
      onMessage: (answer: Buffer) => {
        this.#reading = false;
        this.#arrived = answer;
        this.#next();
      },
      onEnd: (error: KvstoreError) => this.#end(error),
    };
    endpoint.stream('Watch', 'Watch', receiver).then(
      (stream) => this.#begin(stream, create),
      (error: unknown) => this.#end(etcdError(error)),
    );
  }

  async range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    this.#checkOpen();
    const answer = await this.#options.range(request, options);
    this.#checkOpen();
    return answer;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    if (this.#telling === undefined) this.#next();
    else this.#turn ??= setImmediate(this.#tell);
  }

  requestProgress(): void {
    this.#progressRequested++;
    this.#stream?.write(encodeWatchProgress());
  }

  cancel(): void {
    this.#ended = true;
    this.#accepted();
    this.#telling = undefined;
    this.#arrived = undefined;
    this.#stream?.cancel();
  }

  #checkOpen(): void {
    if (this.#ended) throw new KvstoreError('unavailable', 'the stream has ended');
  }

  #begin(stream: EtcdStream, create: Buffer): void {
    if (this.#ended) {
      stream.cancel();
      return;
    }
    this.#stream = stream;
    stream.write(create);
    this.#next();
  }

  /** One message after the other is asked for and delivered: what is not asked for stays with the server. */
  #next(): void {
    if (this.#ended || this.#paused || this.#reading || this.#telling !== undefined) return;
    const answer = this.#arrived;
    if (answer === undefined) {
      this.#reading = true;
      this.#stream?.read();
      return;
    }
    this.#arrived = undefined;
    this.#guarded(() => this.#take(decodeWatch(answer)));
    this.#next();
  }

  #end(error: KvstoreError): void {
    if (this.#ended) return;
    this.cancel();
    this.#observer.onEnd(this.#options.onEnd(error));
  }

  #take(answer: WatchAnswer): void {
    if (this.#ended) return;
    const { header, created, canceled, events } = answer;
    if (canceled) this.#end(cancellation(answer));
    else if (created) this.#created(header);
    else if (events.isEmpty) this.#progress(answer);
    else {
      this.#telling = answer;
      this.#tell();
    }
  }

  #created(header: ResponseHeader): void {
    this.#accepted();
    this.#observer.onCreated(header);
  }

  /** Tells a slice of the answer's events, and the next one in a later turn; none while paused. */
  readonly #tell = (): void => {
    this.#turn = undefined;
    const answer = this.#telling;
    if (answer === undefined || this.#ended || this.#paused) return;
    this.#guarded(() => {
      const events = answer.events.take(SLICE_EVENTS);
      const isLast = answer.events.isEmpty;
      if (isLast) this.#telling = undefined;
      this.#observer.onEvents(events, answer.header, isLast && answer.fragment);
      if (isLast) this.#next();
      else this.#turn ??= setImmediate(this.#tell);
    });
  };

  /** What cannot be decoded ends the stream. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#end(etcdError(error));
    }
  }

  /** Nothing tells an answer to a request from a notification of the server's own; the request counts first. */
  #progress({ header }: WatchAnswer): void {
    const requested = this.#progressRequested > 0;
    if (requested) this.#progressRequested--;
    this.#observer.onProgress(header, requested);
  }
}

function cancellation({ compactRevision, cancelReason }: WatchAnswer): KvstoreError {
  if (compactRevision > 0) {
    return new KvstoreError('compacted', `history before revision ${compactRevision} has been compacted`);
  }
  return new KvstoreError(codeOfMessage(cancelReason) ?? 'unavailable', `watch canceled: ${cancelReason}`);
}
