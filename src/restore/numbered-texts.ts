import { type ByteBuffer, DamagedError } from '../net/byte-buffer.ts';

/** Maximum number of numbered texts. Limits the memory of writer and reader. */
export const MAX_NUMBERED_TEXTS = 65_536;

/** Precedes a text that gets no number, because {@link MAX_NUMBERED_TEXTS} texts have one. */
const UNNUMBERED = 0;
/** Precedes a text that gets the next free number. */
const NEXT_NUMBER = 1;
const FIRST_NUMBER = 2;

/** The repeating texts of a file. Each is written in full the first time, and by number afterwards. */
export class NumberedTexts {
  /** The number of each written text. */
  readonly #numbers = new Map<string, number>();
  /** The texts that were read, in the order of their numbers. */
  readonly #texts: string[] = [];

  write(out: ByteBuffer, text: string): void {
    const number = this.#numbers.get(text);
    if (number !== undefined) {
      out.writeNumber(number);
      return;
    }
    const isNumbered = this.#numbers.size < MAX_NUMBERED_TEXTS;
    if (isNumbered) this.#numbers.set(text, FIRST_NUMBER + this.#numbers.size);
    out.writeNumber(isNumbered ? NEXT_NUMBER : UNNUMBERED);
    out.writeText(text);
  }

  read(from: ByteBuffer): string {
    const number = from.readNumber();
    if (number === UNNUMBERED) return from.readText();
    if (number === NEXT_NUMBER) {
      const text = from.readText();
      if (this.#texts.push(text) > MAX_NUMBERED_TEXTS) throw new DamagedError('too many numbered texts');
      return text;
    }
    const text = this.#texts[number - FIRST_NUMBER];
    if (text === undefined) throw new DamagedError(`unknown number of a text: ${number}`);
    return text;
  }
}
