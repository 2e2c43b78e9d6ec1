import type { Clock, Timer } from '../base/clock.ts';

interface Alarm {
  readonly at: number;
  readonly callback: () => void;
}

/** A clock with the times of a tape. Timers fire in the order of their times, then of their creation. */
export class ReplayClock implements Clock {
  /** Wall time minus `now()`. */
  wallOffset = 0;
  #now = 0;
  readonly #alarms = new Set<Alarm>();

  now(): number {
    return this.#now;
  }

  wallTime(): number {
    return this.wallOffset + this.#now;
  }

  after(delayMs: number, callback: () => void): Timer {
    const alarm = { at: this.#now + Math.max(0, delayMs), callback };
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  /** Sets the time and fires the due timers. Time never decreases. */
  advanceTo(ms: number): void {
    for (;;) {
      let next: Alarm | undefined;
      for (const alarm of this.#alarms)
        if (alarm.at <= ms && (next === undefined || alarm.at < next.at)) next = alarm;
      if (next === undefined) break;
      this.#alarms.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
    }
    this.#now = Math.max(this.#now, ms);
  }
}
