import { Document, isScalar, LineCounter, parseAllDocuments, visit, YAMLParseError } from 'yaml';
import { yamlProblem } from '../base/failure.ts';
import { parseBlockYaml, UnusualYamlError } from './block-yaml.ts';

export interface YamlDocument {
  readonly document: Document;
  /** The source of the document. Offsets of the document refer to it. */
  readonly text: string;
  /** Returns the line of the whole text, counted from 1, for an offset of the document. */
  readonly lineAt: (offset: number) => number;
}

/** A part of a YAML text that can be parsed alone. */
export interface YamlPiece {
  readonly text: string;
  /** Number of lines of the whole text before this piece. */
  readonly linesBefore: number;
}

const MARKER = '---';

/** Returns the start of the next line with a document marker, or -1. */
function nextMarker(text: string, from: number): number {
  for (let at = text.indexOf(`\n${MARKER}`, from); at >= 0; at = text.indexOf(`\n${MARKER}`, at + 1)) {
    const next = text[at + 1 + MARKER.length];
    if (next === undefined || /\s/.test(next)) return at + 1;
  }
  return -1;
}

/** Returns the number of line feeds in a text. */
export function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines++;
  return lines;
}

/**
 * Yields the text in pieces, each up to the next marker. A marker always ends a document, even within a block scalar. A
 * text that begins with a directive (`%`) is one piece, because directives end with a marker, too.
 */
export function* yamlPieces(text: string): Generator<YamlPiece, void, void> {
  let linesBefore = 0;
  let from = 0;
  while (from < text.length) {
    const marker = text.startsWith('%') ? -1 : nextMarker(text, from);
    const piece = text.slice(from, marker < 0 ? undefined : marker);
    yield { text: piece, linesBefore };
    linesBefore += countLines(piece);
    from += piece.length;
  }
}

/**
 * Yields the documents of a piece. Keys of a map must be unique: a repeated one is an error of its document. Linear in
 * the text; about 1 µs per byte.
 */
export function* documentsOf({ text, linesBefore }: YamlPiece): Generator<YamlDocument, void, void> {
  const lines = new LineCounter();
  const lineAt = (offset: number): number => linesBefore + lines.linePos(offset).line;
  for (const document of parsePiece(text, lines)) yield { document, text, lineAt };
}

/** Returns the plain value of a YAML text in block style; undefined if it needs the complete parser. */
export function blockValue(text: string): unknown {
  try {
    return parseBlockYaml(text);
  } catch (error) {
    if (error instanceof UnusualYamlError) return undefined;
    throw error;
  }
}

/** Returns the plain value of a part of a document, or the error as a string. */
export function parsePart(text: string): { readonly value: unknown } | string {
  const value = blockValue(text);
  if (value !== undefined) return { value };
  const [first] = documentsOf({ text, linesBefore: 0 });
  return first === undefined ? { value: null } : plainValue(first.document);
}

/** Maximum length of a document. The parser would need minutes and gigabytes for a longer one. */
const MAX_CHARS: number = 16 << 20;

function parsePiece(text: string, lineCounter: LineCounter): readonly Document[] {
  if (text.length > MAX_CHARS) {
    lineCounter.addNewLine(0);
    const tooLong = new Document(null);
    const reason = `the YAML document has more than ${MAX_CHARS >> 20} Mi characters; convert it to JSON`;
    tooLong.errors.push(new YAMLParseError([0, 1], 'UNEXPECTED_TOKEN', reason));
    return [tooLong];
  }
  // The options avoid quadratic costs: the key check of the parser compares each key with all earlier ones, and
  // formatting an error costs a pass over its line.
  const documents = parseAllDocuments(text, { lineCounter, uniqueKeys: false, prettyErrors: false });
  for (const document of documents) addRepeatedKeys(document);
  return documents;
}

/** Reports the first repeated key of each map. */
function addRepeatedKeys(document: Document): void {
  visit(document, {
    Map: (_, { items }) => {
      const keys = new Set<unknown>();
      for (const { key } of items) {
        if (!isScalar(key)) continue;
        if (keys.has(key.value)) {
          const at = key.range?.[0] ?? 0;
          document.errors.push(new YAMLParseError([at, at + 1], 'DUPLICATE_KEY', 'Map keys must be unique'));
          return visit.SKIP;
        }
        keys.add(key.value);
      }
      return undefined;
    },
  });
}

/** Returns the plain value of a document, or the problem as a string, such as too many aliases. */
export function plainValue(document: Document): { readonly value: unknown } | string {
  const [error] = document.errors;
  if (error !== undefined) return yamlProblem(error);
  try {
    return { value: document.toJS() };
  } catch (error) {
    return yamlProblem(error);
  }
}

/**
 * Returns the plain value of a text with one document, null if it is empty, or the error as a string. An error of the
 * syntax begins with its line.
 */
export function parseYaml(text: string): { readonly value: unknown } | string {
  const [first, ...others] = [...yamlPieces(text)].flatMap((piece) => [...documentsOf(piece)]);
  if (others.length > 0) return 'must be one YAML document';
  if (first === undefined) return { value: null };
  const [error] = first.document.errors;
  return error === undefined
    ? plainValue(first.document)
    : `line ${first.lineAt(error.pos[0])}: ${yamlProblem(error)}`;
}
