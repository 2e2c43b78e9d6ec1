import { parseJsonInPieces } from '../../base/json-pieces.ts';
import type { TurnGate } from '../../base/turn-gate.ts';

/** An object is parsed, read and applied in some 20 µs: what the gate takes for so many events. */
const WEIGHT = 8;

/** Characters that may be parsed at once: some milliseconds. */
const LARGE = 128 * 1024;

/** Runs of texts that are parsed in one piece of work; each large one alone. */
function* runs(texts: readonly string[], slice: number): Generator<readonly string[], void, void> {
  let from = 0;
  for (let i = 0; i < texts.length; i++) {
    const isLarge = (texts[i]?.length ?? 0) > LARGE;
    if (isLarge && i > from) yield texts.slice(from, i);
    if (isLarge || i + 1 - from === slice || i + 1 === texts.length) {
      yield texts.slice(isLarge ? i : from, i + 1);
      from = i + 1;
    }
  }
}

/**
 * Decodes texts in order and gives them to `take`, some at a time and the large ones in steps, so that others run in
 * between. A text that is no JSON is given as `undefined`.
 */
export async function readTexts(
  texts: readonly string[],
  gate: TurnGate,
  take: (values: readonly unknown[]) => void,
  signal: AbortSignal,
): Promise<void> {
  for (const run of runs(texts, Math.max(1, Math.floor(gate.slice / WEIGHT)))) {
    const [first = ''] = run;
    if (first.length <= LARGE) await gate.run(run.length * WEIGHT, () => take(run.map(parse)), signal);
    else take([await parseLarge(first, gate, signal)]);
    if (signal.aborted) return;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function parseLarge(text: string, gate: TurnGate, signal: AbortSignal): Promise<unknown> {
  const steps = parseJsonInPieces(text);
  let result: unknown;
  const all = function* (): Generator<undefined, void> {
    result = yield* steps;
  };
  try {
    await gate.runSteps(all(), signal);
    return result;
  } catch {
    return undefined;
  }
}
