import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { parseJsonInPieces } from '../base/json-pieces.ts';

/** Returns the result of `parseJsonInPieces`, with one turn of the event loop for each piece; undefined if the text is not JSON. */
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
