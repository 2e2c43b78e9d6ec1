import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { parseJsonInPieces } from '../base/json-pieces.ts';

/**
 * Parses a text in pieces, one per turn of the event loop. Resolves to the value; undefined if the text is not JSON.
 */
export async function parseJsonInTurns(text: string): Promise<unknown> {
  const pieces = parseJsonInPieces(text);
  try {
    for (let piece = pieces.next(); ; piece = pieces.next()) {
      if (piece.done) return piece.value;
      await eventLoopTurn();
    }
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
