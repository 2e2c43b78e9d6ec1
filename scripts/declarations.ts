import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** A name and the file that declares it. */
export interface Declared {
  readonly name: string;
  readonly file: string;
}

/** A declaration as it is in its file, without protected members. */
export interface Documented {
  /** The docstring with its marks; empty if there is none. */
  readonly docstring: string;
  /** The declaration with the docstrings of its members. */
  readonly text: string;
}

interface DeclarationFile {
  /** Text of each top-level declaration, by name, without comments and protected members. */
  readonly declarations: ReadonlyMap<string, string>;
  /** The declarations with their docstrings, by name; several if a function has several signatures. */
  readonly documented: ReadonlyMap<string, readonly Documented[]>;
  /** Names that the file exports. The other declarations are internal abbreviations of types. */
  readonly exported: ReadonlySet<string>;
  /** Imported names: local name → declaration. A package counts as a file with the name of the package. */
  readonly imports: ReadonlyMap<string, Declared>;
  /** Reexported names: name → declaration. */
  readonly reexports: ReadonlyMap<string, Declared>;
  /** Files that are reexported completely. */
  readonly stars: readonly string[];
}

const DECLARATION =
  /^(export )?(?:declare )?(?:abstract )?(?:class|interface|type|const|function) ([A-Za-z_]\w*)/;
const FROM = /^(import|export)(?: type)? (\*|\{[^}]*\}) from '([^']+)';$/;

function pathOf(specifier: string, file: string): string {
  return specifier.startsWith('.')
    ? join(dirname(file), specifier).replace(/\.(?:ts|js)$/, '.d.ts')
    : specifier;
}

/** Returns the parts of `{ a, type b as c }`: exported name, local name. */
function namesIn(braces: string): readonly (readonly [string, string])[] {
  return braces
    .slice(1, -1)
    .split(',')
    .map((part) => part.trim().replace(/^type /, ''))
    .filter((part) => part !== '')
    .map((part) => {
      const [there = part, here = there] = part.split(' as ');
      return [there, here] as const;
    });
}

/** Returns declarations with their docstrings. Both begin at the start of a line. */
function readDocumented(text: string): ReadonlyMap<string, readonly Documented[]> {
  const documented = new Map<string, Documented[]>();
  let docstring = '';
  for (const piece of text.split(/\n(?=\/\*\*|[A-Za-z])/)) {
    const [, , name] = DECLARATION.exec(piece) ?? [];
    if (name !== undefined)
      documented.set(name, [...(documented.get(name) ?? []), { docstring, text: piece.trimEnd() }]);
    docstring = piece.startsWith('/**') ? piece.trimEnd() : '';
  }
  return documented;
}

/** Replaces `(typeof LIST)[number]` with the union of the values of LIST, a list of literals in the same file. */
function withUnions(source: string): string {
  return source.replace(/\(typeof (\w+)\)\[number\]/g, (text, list) => {
    const [, items] = new RegExp(`const ${list}: readonly \\[(.*)\\];`).exec(source) ?? [];
    return items?.replaceAll(', ', ' | ').replaceAll('"', "'") ?? text;
  });
}

function readDeclarations(file: string): DeclarationFile {
  const source = withUnions(readFileSync(file, 'utf8')).replace(
    /^ +(?:\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n +)?(?:(?:protected|private) .*|#private;)\n/gm,
    '',
  );
  const text = source.replace(/\/\*[\s\S]*?\*\//g, '');
  const declarations = new Map<string, string>();
  const exported = new Set<string>();
  const imports = new Map<string, Declared>();
  const reexports = new Map<string, Declared>();
  const stars: string[] = [];
  // A statement begins with a letter at the start of a line. All its other lines are indented or begin with a bracket.
  for (const statement of text.split(/\n(?=[A-Za-z])/)) {
    const [, isExported, declared] = DECLARATION.exec(statement) ?? [];
    if (declared !== undefined) declarations.set(declared, `${declarations.get(declared) ?? ''}${statement}`);
    if (declared !== undefined && isExported !== undefined) exported.add(declared);
    const [, kind, names, specifier = ''] = FROM.exec(statement.replace(/\s+/g, ' ').trim()) ?? [];
    if (kind === undefined || names === undefined) continue;
    const target = pathOf(specifier, file);
    if (names === '*') stars.push(target);
    else
      for (const [there, here] of namesIn(names))
        (kind === 'import' ? imports : reexports).set(here, { name: there, file: target });
  }
  return { declarations, documented: readDocumented(source), exported, imports, reexports, stars };
}

/** Follows exports and imports through the declarations of a package. */
export class Declarations {
  readonly #files = new Map<string, DeclarationFile>();

  /** Returns the exports of an entry: public name → declaration. */
  exportsOf(entry: string): ReadonlyMap<string, Declared> {
    const { exported, reexports, stars } = this.#file(entry);
    const found = new Map<string, Declared>();
    for (const star of stars) for (const [name, declared] of this.exportsOf(star)) found.set(name, declared);
    for (const [name, declared] of reexports) found.set(name, declared);
    for (const name of exported) found.set(name, { name, file: entry });
    return found;
  }

  /** Returns a declaration as it is in its file. */
  documentedOf({ name, file }: Declared): readonly Documented[] {
    return this.#file(file).documented.get(name) ?? [];
  }

  /** Returns the names to which a declaration refers. Abbreviations of its file are resolved. */
  references({ name, file }: Declared, seen: Set<string> = new Set([name])): readonly Declared[] {
    const { declarations, exported, imports } = this.#file(file);
    const words = new Set(declarations.get(name)?.match(/[A-Za-z_]\w*/g));
    return [...words].flatMap((word) => {
      if (seen.has(word)) return [];
      const imported = imports.get(word);
      if (imported !== undefined) return [imported];
      if (!declarations.has(word)) return [];
      if (exported.has(word)) return [{ name: word, file }];
      seen.add(word);
      return this.references({ name: word, file }, seen);
    });
  }

  #file(path: string): DeclarationFile {
    const known = this.#files.get(path) ?? readDeclarations(path);
    this.#files.set(path, known);
    return known;
  }
}

/** Returns the names that an entry does not export although its exports refer to them, directly or indirectly. */
export function unnamed(declarations: Declarations, entry: string): readonly string[] {
  const exported = [...declarations.exportsOf(entry).values()];
  const known = new Set(exported.map(({ name, file }) => `${file} ${name}`));
  const missing = new Set<string>();
  for (const declared of exported) {
    if (!declared.file.endsWith('.d.ts')) continue;
    for (const { name, file } of declarations.references(declared)) {
      if (!known.has(`${file} ${name}`)) missing.add(`${declared.name} needs ${name} of ${file}`);
    }
  }
  return [...missing].sort();
}

/** Returns the exports of an entry without a docstring, and the members of its `…Options` without one. */
export function undocumented(declarations: Declarations, entry: string): readonly string[] {
  const missing: string[] = [];
  for (const [name, declared] of declarations.exportsOf(entry)) {
    if (!declared.file.endsWith('.d.ts')) continue;
    for (const { docstring, text } of declarations.documentedOf(declared)) {
      if (docstring === '') missing.push(name);
      if (!name.endsWith('Options')) continue;
      for (const [, before = '', member] of text.matchAll(/(.*)\n {4}readonly (\w+)/g))
        if (!before.endsWith('*/')) missing.push(`${name}.${member}`);
    }
  }
  return missing.sort();
}

/** Returns the `{@link}`s in docstrings of an entry that name neither an export of the entry nor a member of one. */
export function brokenLinks(declarations: Declarations, entry: string): readonly string[] {
  const exported = declarations.exportsOf(entry);
  const hasMember = (declared: Declared, member: string): boolean =>
    [declared, ...declarations.references(declared)].some((owner) =>
      declarations.documentedOf(owner).some(({ text }) => new RegExp(`^ +.*\\b${member}\\b`, 'm').test(text)),
    );
  const broken: string[] = [];
  for (const [name, declared] of exported) {
    if (!declared.file.endsWith('.d.ts')) continue;
    for (const { docstring, text } of declarations.documentedOf(declared))
      for (const [, path = ''] of `${docstring}${text}`.matchAll(/\{@link\s+([\w.]+)\}/g)) {
        const [root = '', member] = path.split('.');
        const owner = exported.get(root);
        if (owner === undefined || (member !== undefined && !hasMember(owner, member)))
          broken.push(`${name}: ${path}`);
      }
  }
  return broken.sort();
}
