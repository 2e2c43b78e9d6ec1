/** The items of a list in the text of a YAML document. */
export interface ListItems {
  /** Offset of the first item. */
  readonly begin: number;
  /** Offset after the last item. */
  readonly end: number;
}

const ITEMS = /(?<![^\n])items:[ \t\r\n]*\n(?=-\s)/;
/** The next line without indent and dash. Not `^`, which also matches after other line separators than `\n`. */
const LINE_AFTER_ITEMS = /(?<=\n)(?!-\s)\S/;
const NEXT_ITEM = /(?<=\n)-\s/g;

/** Returns the items of a list in the format of kubectl, whose items have no indent; undefined if there are none. */
export function findItems(text: string): ListItems | undefined {
  const items = ITEMS.exec(text);
  if (items === null) return undefined;
  const begin = items.index + items[0].length;
  const length = text.slice(begin).search(LINE_AFTER_ITEMS);
  return { begin, end: length < 0 ? text.length : begin + length };
}

/** Yields the text and offset of each item. A blank replaces its dash, so that the item is a map. */
export function* itemsOf(
  text: string,
  { begin: first, end: last }: ListItems,
): Generator<{ readonly item: string; readonly begin: number; readonly isLast: boolean }, void, void> {
  for (let begin = first; begin < last; ) {
    NEXT_ITEM.lastIndex = begin + 1;
    const end = Math.min(NEXT_ITEM.exec(text)?.index ?? last, last);
    yield { item: ` ${text.slice(begin + 1, end)}`, begin, isLast: end === last };
    begin = end;
  }
}
