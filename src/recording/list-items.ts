/** The items of a list in the text of a YAML document. */
export interface ListItems {
  /** Offset of the first item. */
  readonly begin: number;
  /** Offset after the last item. */
  readonly end: number;
}

const ITEMS = /^items:\s*$/m;

/** Returns the items of a list in the format of kubectl, whose items have no indent; undefined if there are none. */
export function findItems(text: string): ListItems | undefined {
  const items = ITEMS.exec(text);
  if (items === null) return undefined;
  const begin = items.index + items[0].length + 1;
  if (!text.startsWith('- ', begin)) return undefined;
  // The items end at the next line without indent and dash.
  const length = text.slice(begin).search(/^[^\s-]/m);
  return { begin, end: length < 0 ? text.length : begin + length };
}

/** Yields the text and offset of each item. A blank replaces its dash, so that the item is a map. */
export function* itemsOf(
  text: string,
  { begin: first, end: last }: ListItems,
): Generator<{ readonly item: string; readonly begin: number; readonly isLast: boolean }, void, void> {
  for (let begin = first; begin < last; ) {
    const next = text.indexOf('\n- ', begin);
    const end = next < 0 || next >= last ? last : next + 1;
    yield { item: ` ${text.slice(begin + 1, end)}`, begin, isLast: end === last };
    begin = end;
  }
}
