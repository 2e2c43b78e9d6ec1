import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { settle as settleTurns } from '../../kvstore/support/settle.ts';

/** A {@link ManualClock} of a machine that runs since `uptimeMs`. Pending promises run after each timer. */
export class FakeClock extends ManualClock {
  constructor(uptimeMs = 98_765_432) {
    super(WALL_TIME_AT_0 - uptimeMs);
    super.advance(uptimeMs);
  }

  override async advance(ms: number): Promise<void> {
    const end = this.now() + ms;
    for (let next = this.nextAt; next !== undefined && next <= end; next = this.nextAt) {
      super.advance(next - this.now());
      await settle();
    }
    super.advance(end - this.now());
    await settle();
  }
}

/** Runs everything that waits only for a turn, of all parts of an agent. */
export function settle(): Promise<void> {
  return settleTurns(20);
}
