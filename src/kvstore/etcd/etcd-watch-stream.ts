import { KvstoreError } from '../errors.ts';
import { prefixRange } from '../key-range.ts';
import type { WatchObserver, WatchRequest, WatchStream } from '../transport.ts';
import type { EtcdEndpoint, EtcdStream } from './etcd-endpoint.ts';
import { codeOfMessage, etcdError } from './etcd-errors.ts';
import { decodeWatch, encodeWatchCreate, encodeWatchProgress, type WatchAnswer } from './messages.ts';

/** One watch on a stream of its own, so that it can be paused without holding back others. */
export class EtcdWatchStream implements WatchStream {
  readonly #observer: WatchObserver;
  readonly #onEnd: (error: KvstoreError) => void;
  #stream: EtcdStream<WatchAnswer> | undefined;
  #paused = false;
  #ended = false;
  #progressRequested = 0;

  /**
   * @param options.fragment let the server split an answer that would be too large
   * @param options.onEnd told why it has ended, before the observer is
   */
  constructor(
    endpoint: EtcdEndpoint,
    request: WatchRequest,
    observer: WatchObserver,
    options: { readonly fragment: boolean; onEnd(error: KvstoreError): void },
  ) {
    this.#observer = observer;
    this.#onEnd = options.onEnd;
    const create = encodeWatchCreate(prefixRange(request.prefix), request.startRevision, options.fragment);
    endpoint.stream('Watch', 'Watch', decodeWatch).then(
      (stream) => this.#begin(stream, create),
      (error: unknown) => this.#end(etcdError(error)),
    );
  }

  pause(): void {
    this.#paused = true;
    this.#stream?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#stream?.resume();
  }

  requestProgress(): void {
    this.#progressRequested++;
    this.#stream?.write(encodeWatchProgress());
  }

  cancel(): void {
    this.#ended = true;
    this.#stream?.cancel();
  }

  #begin(stream: EtcdStream<WatchAnswer>, create: Buffer): void {
    // First of all: a stream without this handler would end the process.
    stream.on('error', (error) => this.#end(etcdError(error)));
    stream.on('end', () => this.#end(new KvstoreError('unavailable', 'the server has ended the stream')));
    if (this.#ended) {
      stream.cancel();
      return;
    }
    this.#stream = stream;
    stream.on('data', (answer: WatchAnswer) => this.#take(answer));
    if (this.#paused) stream.pause();
    stream.write(create);
  }

  #end(error: KvstoreError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stream?.cancel();
    this.#onEnd(error);
    this.#observer.onEnd(error);
  }

  #take(answer: WatchAnswer): void {
    if (this.#ended) return;
    const { header, created, canceled, events, fragment } = answer;
    if (canceled) this.#end(cancellation(answer));
    else if (created) this.#observer.onCreated(header);
    else if (events.length > 0) this.#observer.onEvents(events, header, fragment);
    else this.#progress(answer);
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
