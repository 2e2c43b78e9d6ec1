import { cutText } from '../../base/show-value.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { watchedRange } from '../codec/key-range.ts';
import { KvstoreError } from '../session/errors.ts';
import type {
  CallOptions,
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../session/transport.ts';
import type { EtcdStream } from './etcd-connection.ts';
import type { EtcdEndpoint } from './etcd-endpoint.ts';
import { codeOfMessage, etcdError, MAX_SERVER_TEXT } from './etcd-errors.ts';
import { decodeWatch, encodeWatchCreate, encodeWatchProgress, type WatchAnswer } from './messages.ts';

// Events that are decoded and compared in one turn: about a millisecond.
const SLICE_EVENTS = 512;
// Bytes of a message per unit of its weight at the gate. A put has 250 bytes, a delete 60.
const BYTES_PER_WEIGHT = 128;

/** Options of an {@link EtcdWatchStream}, and callbacks of its transport. */
export interface EtcdWatchOptions {
  /** Allows the server to split an answer that would be too large. */
  readonly fragment: boolean;
  /** Admits each message and each slice of its events. */
  readonly gate: TurnGate;
  /** Reads from the endpoint of the stream. */
  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse>;
  /** Receives the reason of the end. Returns the error that the observer receives. */
  onEnd(error: KvstoreError): KvstoreError;
}

/** One watch on its own stream, so that it can be paused without an effect on others. */
export class EtcdWatchStream implements WatchStream {
  /** The endpoint, as errors name it. */
  readonly #host: string;
  readonly #observer: WatchObserver;
  readonly #options: EtcdWatchOptions;
  /**
   * Cancels the deadline for the response that the watch was created, which may never arrive if the token is from
   * before a restore.
   */
  readonly #cancelDeadline: () => void;
  /** The id of the etcd cluster that has created the watch; undefined before. */
  #clusterID: string | undefined;
  /** Revision of the last event. */
  #revision = 0;
  #stream: EtcdStream | undefined;
  /** The answer whose events are being delivered. */
  #delivering: WatchAnswer | undefined;
  /** Set while `#deliverNext` is scheduled. */
  #immediate: NodeJS.Immediate | undefined;
  #isPaused = false;
  /** True if a message was requested and has not arrived. */
  #isReading = false;
  /** A message that has arrived and was not decoded, because the stream is paused or the message waits at the gate. */
  #arrived: Buffer | undefined;
  /** True while a message or a slice waits at the gate. */
  #isWaiting = false;
  #isEnded = false;

  constructor(
    endpoint: EtcdEndpoint,
    request: WatchRequest,
    observer: WatchObserver,
    options: EtcdWatchOptions,
  ) {
    this.#host = endpoint.host;
    this.#observer = observer;
    this.#options = options;
    this.#cancelDeadline = endpoint.startDeadline(undefined, () => {
      this.#end(endpoint.deadlineError());
    });
    const create = encodeWatchCreate(watchedRange(request), request.startRevision, options.fragment);
    const receiver = {
      onMessage: (answer: Buffer) => {
        this.#isReading = false;
        this.#arrived = answer;
        this.#readNext();
      },
      onEnd: (error: KvstoreError) => this.#end(error),
    };
    endpoint.stream('Watch', 'Watch', receiver).then(
      (stream) => this.#start(stream, create),
      (error: unknown) => this.#end(etcdError(error, this.#host)),
    );
  }

  async range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    this.#checkOpen();
    const answer = await this.#options.range(request, options);
    this.#checkOpen();
    // The connection of the stream may have been replaced by one to another cluster.
    if (this.#isOther(answer.header))
      throw etcdError(new Error(this.#otherClusterText(answer.header)), this.#host);
    return answer;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#delivering === undefined) this.#readNext();
    else this.#immediate ??= setImmediate(this.#deliverNext);
  }

  requestProgress(): void {
    this.#stream?.write(encodeWatchProgress());
  }

  cancel(): void {
    this.#isEnded = true;
    this.#cancelDeadline();
    this.#delivering = undefined;
    this.#arrived = undefined;
    this.#stream?.cancel();
  }

  #checkOpen(): void {
    if (this.#isEnded) throw new KvstoreError('unavailable', 'the stream ended');
  }

  #start(stream: EtcdStream, create: Buffer): void {
    if (this.#isEnded) {
      stream.cancel();
      return;
    }
    this.#stream = stream;
    stream.write(create);
    this.#readNext();
  }

  /** Requests and delivers one message after the other. Unrequested messages remain on the server. */
  #readNext(): void {
    const isBusy = this.#isReading || this.#isWaiting || this.#delivering !== undefined;
    if (isBusy || this.#isEnded || this.#isPaused) return;
    const answer = this.#arrived;
    if (answer === undefined) {
      this.#isReading = true;
      this.#stream?.read();
      return;
    }
    const weight = 1 + Math.floor(answer.length / BYTES_PER_WEIGHT);
    this.#admit(weight, () => {
      this.#arrived = undefined;
      this.#receive(decodeWatch(answer));
      this.#readNext();
    });
  }

  /**
   * Runs `act` when the gate has room, unless the stream has then ended or is paused. Ends the stream if `act` throws,
   * because an answer cannot be decoded.
   */
  #admit(weight: number, act: () => void): void {
    this.#isWaiting = true;
    void this.#options.gate.run(Math.min(SLICE_EVENTS, weight), () => {
      this.#isWaiting = false;
      if (this.#isEnded || this.#isPaused) return;
      try {
        act();
      } catch (error) {
        this.#end(etcdError(error, this.#host));
      }
    });
  }

  /** Discards messages and slices at the gate, because the next watch starts after the last delivered event. */
  #end(error: KvstoreError): void {
    if (this.#isEnded) return;
    this.cancel();
    this.#observer.onEnd(this.#options.onEnd(error));
  }

  #receive(answer: WatchAnswer): void {
    if (this.#isEnded) return;
    const { header, requested, created, canceled, events } = answer;
    if (canceled) this.#end(cancellation(answer, this.#host));
    else if (created) this.#accept(header);
    else if (this.#clusterID === undefined) this.#endInvalid('a response before the watch was created');
    else if (header.clusterID !== '' && this.#isOther(header))
      this.#endInvalid(this.#otherClusterText(header));
    else if (events.isEmpty && answer.fragment) this.#endInvalid('a fragment without events');
    else if (events.isEmpty) this.#observer.onProgress(header, requested);
    else {
      this.#delivering = answer;
      this.#deliver(answer);
    }
  }

  /** Ends the stream after an answer that violates the protocol. */
  #endInvalid(violation: string): void {
    this.#end(etcdError(new Error(violation), this.#host));
  }

  /**
   * Returns true if the header is of another etcd cluster. The gRPC proxy of etcd joins equal watches. Its response
   * that a watch was created then has no cluster id, so the next header sets the id.
   */
  #isOther({ clusterID }: ResponseHeader): boolean {
    if (this.#clusterID === '') this.#clusterID = clusterID;
    return clusterID !== this.#clusterID;
  }

  #otherClusterText({ clusterID }: ResponseHeader): string {
    return `an answer of etcd cluster ${clusterID} to a watch of cluster ${this.#clusterID}`;
  }

  #accept(header: ResponseHeader): void {
    if (this.#clusterID !== undefined) {
      this.#endInvalid('a second response that the watch was created');
      return;
    }
    this.#clusterID = header.clusterID;
    this.#cancelDeadline();
    this.#observer.onCreated(header);
  }

  /** Delivers a slice of the events, and schedules the next slice for a later turn. */
  #deliver(answer: WatchAnswer): void {
    const events = answer.events.takeEvents(SLICE_EVENTS);
    for (const event of events) {
      const { modRevision } = event;
      // Each access to the key of an event creates its text, so it is read for the message only.
      if (modRevision < this.#revision)
        throw new Error(
          `an event of ${cutText(event.key, MAX_SERVER_TEXT)} at revision ${modRevision} after revision ${this.#revision}`,
        );
      this.#revision = modRevision;
    }
    const { revision } = answer.header;
    const last = events.at(-1);
    // etcd and its gRPC proxy never send an event that is later than the header.
    if (last !== undefined && last.modRevision > revision)
      throw new Error(
        `an event of ${cutText(last.key, MAX_SERVER_TEXT)} at revision ${last.modRevision} in an answer at revision ${revision}`,
      );
    const { isEmpty: isLast, nextRevision } = answer.events;
    if (isLast) this.#delivering = undefined;
    const isPartial = isLast ? answer.fragment : nextRevision === events.at(-1)?.modRevision;
    this.#observer.onEvents(events, answer.header, isPartial);
    if (isLast) this.#readNext();
    else this.#immediate ??= setImmediate(this.#deliverNext);
  }

  readonly #deliverNext = (): void => {
    this.#immediate = undefined;
    const answer = this.#delivering;
    if (answer === undefined || this.#isWaiting || this.#isEnded || this.#isPaused) return;
    this.#admit(SLICE_EVENTS, () => this.#deliver(answer));
  };
}

function cancellation({ compactRevision, cancelReason }: WatchAnswer, host: string): KvstoreError {
  if (compactRevision > 0) {
    return new KvstoreError('compacted', `history before revision ${compactRevision} has been compacted`);
  }
  const message = `etcd at ${host} canceled the watch: ${cancelReason}`;
  return new KvstoreError(codeOfMessage(cancelReason) ?? 'unavailable', message);
}
