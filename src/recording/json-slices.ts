import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { parseJsonInPieces } from '../base/json-pieces.ts';

/**
 * Resolves to the value of a JSON text; undefined if the text is not JSON. Parses one piece in each turn of the event
 * loop.
 */
export async function parseIfJson(text: string): Promise<unknown> {
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
