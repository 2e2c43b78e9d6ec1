import { parseJsonInPieces } from '../../base/json-pieces.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { parseJson } from '../../net/fields.ts';

/** Gate weight of an object: parsing, reading and applying takes about 20 µs, as long as this number of events. */
const OBJECT_WEIGHT = 8;

/** Texts above this number of characters are parsed in steps; parsing takes a few milliseconds. */
const LARGE_LENGTH = 64 * 1024;

/**
 * Divides texts into runs. Each run is parsed in one slice. A run has at most `maxTexts` texts and {@link LARGE_LENGTH}
 * characters; a larger text is a run of its own.
 */
function* runs<T>(
  texts: readonly (string | T)[],
  maxTexts: number,
): Generator<readonly (string | T)[], void, void> {
  let from = 0;
  let size = 0;
  for (const [i, text] of texts.entries()) {
    const length = typeof text === 'string' ? text.length : 0;
    if (i > from && (i - from === maxTexts || size + length > LARGE_LENGTH)) {
      yield texts.slice(from, i);
      from = i;
      size = 0;
    }
    size += length;
  }
  if (from < texts.length) yield texts.slice(from);
}

/**
 * Decodes texts in order and passes their values to `onValues` in groups. Objects that a scanner has read are passed
 * unchanged. Large texts are decoded in steps, so that other work can run in between. If a text is not JSON, its value
 * is undefined. Ends early when the signal fires.
 */
export async function readTexts<T extends object = never>(
  texts: readonly (string | T)[],
  gate: TurnGate,
  onValues: (values: readonly unknown[]) => void,
  signal: AbortSignal,
): Promise<void> {
  for (const run of runs(texts, Math.max(1, Math.floor(gate.slice / OBJECT_WEIGHT)))) {
    const [first = ''] = run;
    if (typeof first !== 'string' || first.length <= LARGE_LENGTH)
      await gate.run(run.length * OBJECT_WEIGHT, () => onValues(run.map(decode)), signal);
    else {
      const value = await parseLarge(first, gate, signal);
      if (!signal.aborted) onValues([value]);
    }
    if (signal.aborted) return;
  }
}

function decode(text: string | object): unknown {
  return typeof text === 'string' ? parseJson(text) : text;
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
