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
import type { EtcdEndpoint, EtcdStream } from './etcd-endpoint.ts';
import { codeOfMessage, etcdError } from './etcd-errors.ts';
import { decodeWatch, encodeWatchCreate, encodeWatchProgress, type WatchAnswer } from './messages.ts';

// About a millisecond of decoding, between which others get their turn.
const SLICE_EVENTS = 512;

const asIs = (bytes: Buffer): Buffer => bytes;

/** How an {@link EtcdWatchStream} is opened, and what it needs of its transport. */
export interface EtcdWatchOptions {
  /** Let the server split an answer that would be too large. */
  readonly fragment: boolean;
  /** The stream ends with `deadline` when the server has not accepted it by then. */
  readonly deadlineMs: number;
  /** Reads from the endpoint of the stream. */
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  /** Receives why it has ended, before the observer does. */
  onEnd(error: KvstoreError): void;
}

/** One watch on a stream of its own, so that it can be paused without holding back others. */
export class EtcdWatchStream implements WatchStream {
  readonly #observer: WatchObserver;
  readonly #options: EtcdWatchOptions;
  /** Ends the wait for the server's consent: it may wait itself, with a token from before a restore for ever. */
  readonly #acceptance: NodeJS.Timeout;
  #stream: EtcdStream<Buffer> | undefined;
  /** The answer whose events are being delivered. */
  #telling: WatchAnswer | undefined;
  #turn: NodeJS.Immediate | undefined;
  #paused = false;
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
    this.#acceptance = setTimeout(() => {
      this.#end(new KvstoreError('deadline', 'the watch was not accepted in time'));
    }, options.deadlineMs);
    const create = encodeWatchCreate(prefixRange(request.prefix), request.startRevision, options.fragment);
    endpoint.stream('Watch', 'Watch', asIs).then(
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
    this.#stream?.pause();
  }

  resume(): void {
    this.#paused = false;
    if (this.#telling === undefined) this.#stream?.resume();
    else this.#turn ??= setImmediate(this.#tell);
  }

  requestProgress(): void {
    this.#progressRequested++;
    this.#stream?.write(encodeWatchProgress());
  }

  cancel(): void {
    this.#ended = true;
    clearTimeout(this.#acceptance);
    this.#stream?.cancel();
  }

  #checkOpen(): void {
    if (this.#ended) throw new KvstoreError('unavailable', 'the stream has ended');
  }

  #begin(stream: EtcdStream<Buffer>, create: Buffer): void {
    // First of all: a stream without this handler would end the process.
    stream.on('error', (error) => this.#end(etcdError(error)));
    stream.on('end', () => this.#end(new KvstoreError('unavailable', 'the server has ended the stream')));
    if (this.#ended) {
      stream.cancel();
      return;
    }
    this.#stream = stream;
    stream.on('data', (answer: Buffer) => this.#guarded(() => this.#take(decodeWatch(answer))));
    if (this.#paused) stream.pause();
    stream.write(create);
  }

  #end(error: KvstoreError): void {
    if (this.#ended) return;
    this.cancel();
    this.#options.onEnd(error);
    this.#observer.onEnd(error);
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
    clearTimeout(this.#acceptance);
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
      else this.#stream?.pause();
      this.#observer.onEvents(events, answer.header, isLast && answer.fragment);
      if (!isLast) this.#turn ??= setImmediate(this.#tell);
      else if (!this.#paused) this.#stream?.resume();
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
