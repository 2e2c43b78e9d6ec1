/** A statement or declaration at the left edge of a file. */
const TOP_LEVEL =
  /^(?:export )?(?:abstract |async |declare )*(?:class|function\*?|interface|type|const|let) ([$\w]+)/;
const CLASS = /^(?:export )?(?:abstract )?class /;
/** A member of a class, formatted by Biome. */
const MEMBER =
  /^ {2}(?:(?:static|readonly|async|override|private|protected|get|set|abstract) |\*)*(#?[$\w]+)\s*[(=:<?;!]/;

/**
 * Returns the function, class member or constant that contains a line, such as `WorkQueue.#run`. Lines are counted from
 * 1. Relies on the indentation of formatted sources.
 */
export function symbolAt(lines: readonly string[], lineNumber: number): string {
  let member: string | undefined;
  for (let at = lineNumber - 1; at >= 0; at--) {
    const line = lines[at] ?? '';
    const [, name] = TOP_LEVEL.exec(line) ?? [];
    if (name !== undefined) return member === undefined || !CLASS.test(line) ? name : `${name}.${member}`;
    member ??= MEMBER.exec(line)?.[1];
  }
  return '';
}

const KEYWORDS = new Set(
  [
    'as await break case catch class const continue default delete do else false finally for function if in instanceof let',
    'new null of return super switch throw true try typeof undefined void while yield',
  ].flatMap((words) => words.split(' ')),
);
const TOKEN = /\/\/[^\n]*|\/\*.*?\*\/|'[^']*'|"[^"]*"|`[^`]*`|#?[$\w]+(?:\.#?[$\w]+)*|\s+|[^\s\w]/gs;
const LONGEST = 48;

/**
 * Returns the operators, literals and keywords of a source text, with `_` for each name. The result stays the same if
 * anything is renamed. The end of a long text is left out.
 */
export function operatorsOf(source: string): string {
  const tokens = source.match(TOKEN) ?? [];
  const text = tokens
    .filter((token) => !/^\/[/*]/.test(token))
    .map((token) => (/^#?[$A-Za-z_]/.test(token) && !KEYWORDS.has(token) ? '_' : token))
    .join('')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/(?<=[([{.!]) | (?=[)\]},;.?:])/g, '')
    .replaceAll(/,(?=[)\]}])/g, '')
    .trim();
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST)}…`;
}
