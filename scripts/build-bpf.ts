// Compiles the C programs of the Linux datapath with clang into base64 text in TypeScript files. The files are
// committed, so that only this script requires clang. With --check, it writes nothing and exits with 1 if a file would
// change. It exits with 3 if clang is missing or has another version than the one that compiled the committed files.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { machine, tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const FOLDERS = ['src', 'test'].map((root) =>
  fileURLToPath(new URL(`../${root}/datapath/linux/bpf/programs/`, import.meta.url)),
);
const TYPES = fileURLToPath(new URL('../src/datapath/linux/bpf/program.ts', import.meta.url));
const LINE = 100;
const MAPS_OF_LINE = 6;
const EM_BPF = 247;
const SHT_SYMTAB = 2;
const SHT_REL = 9;
const SHF_EXECINSTR = 4;
const STT_FUNC = 2;

interface Section {
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly size: number;
  readonly link: number;
  readonly info: number;
}

interface Symbol {
  readonly name: string;
  readonly section: number;
  readonly value: number;
  readonly size: number;
  readonly isFunction: boolean;
}

interface Program {
  readonly name: string;
  readonly code: string;
  readonly maps: readonly (readonly [number, string])[];
}

const text = (file: Buffer, at: number): string => file.toString('latin1', at, file.indexOf(0, at));

function sectionsOf(file: Buffer): readonly Section[] {
  if (file.readUInt16LE(18) !== EM_BPF) throw new Error('clang has not compiled to BPF');
  const start = Number(file.readBigUInt64LE(40));
  const names = start + 64 * file.readUInt16LE(62);
  const nameTable = Number(file.readBigUInt64LE(names + 24));
  return Array.from({ length: file.readUInt16LE(60) }, (_, index) => {
    const at = start + 64 * index;
    return {
      name: text(file, nameTable + file.readUInt32LE(at)),
      type: file.readUInt32LE(at + 4),
      flags: Number(file.readBigUInt64LE(at + 8)),
      offset: Number(file.readBigUInt64LE(at + 24)),
      size: Number(file.readBigUInt64LE(at + 32)),
      link: file.readUInt32LE(at + 40),
      info: file.readUInt32LE(at + 44),
    };
  });
}

function symbolsOf(file: Buffer, sections: readonly Section[]): readonly Symbol[] {
  const table = sections.find(({ type }) => type === SHT_SYMTAB);
  const names = table && sections[table.link];
  if (table === undefined || names === undefined) throw new Error('no symbols');
  return Array.from({ length: table.size / 24 }, (_, index) => {
    const at = table.offset + 24 * index;
    return {
      name: text(file, names.offset + file.readUInt32LE(at)),
      isFunction: (file.readUInt8(at + 4) & 15) === STT_FUNC,
      section: file.readUInt16LE(at + 6),
      value: Number(file.readBigUInt64LE(at + 8)),
      size: Number(file.readBigUInt64LE(at + 16)),
    };
  });
}

/** Returns the programs of an object file: each function that has a section of its own. */
function programsOf(file: Buffer): readonly Program[] {
  const sections = sectionsOf(file);
  const symbols = symbolsOf(file, sections);
  const mapSection = sections.findIndex(({ name }) => name === 'maps');
  const functions = symbols.filter(
    ({ isFunction, section }) => isFunction && ((sections[section]?.flags ?? 0) & SHF_EXECINSTR) !== 0,
  );
  return functions.map(({ name, section, value, size }) => {
    const code = sections[section];
    if (code === undefined) throw new Error(`${name} has no section`);
    const maps: (readonly [number, string])[] = [];
    for (const relocations of sections.filter(({ type, info }) => type === SHT_REL && info === section)) {
      for (let at = relocations.offset; at < relocations.offset + relocations.size; at += 16) {
        const where = Number(file.readBigUInt64LE(at));
        const symbol = symbols[file.readUInt32LE(at + 12)];
        if (where < value || where >= value + size) continue;
        if (symbol === undefined || symbol.section !== mapSection)
          throw new Error(`${name} refers to ${symbol?.name}, which is no map: make its functions inline`);
        maps.push([(where - value) / 8, symbol.name]);
      }
    }
    const bytes = file.subarray(code.offset + value, code.offset + value + size);
    return { name, code: bytes.toString('base64'), maps };
  });
}

function compile(path: string): readonly Program[] {
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-bpf-'));
  try {
    const object = join(folder, 'program.o');
    // Instructions of version 3, which kernels support since 5.8.
    const flags = [
      '-target',
      'bpf',
      '-mcpu=v3',
      '-O2',
      '-Wall',
      '-Werror',
      '-Wno-unused-variable',
      '-fno-ident',
    ];
    execFileSync('clang', [...flags, `-I/usr/include/${machine()}-linux-gnu`, '-c', path, '-o', object]);
    return programsOf(readFileSync(object));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function imageFile(path: string, compiler: string, programs: readonly Program[]): string {
  const [source, types] = [basename(path), relative(dirname(path), TYPES)];
  const codeWords = new Map<string, string>();
  const constants = programs.map(({ name, code, maps }) => {
    const word = name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
    const head = `/** The program \`${name}\` of ${source}. */\nexport const ${word}: ProgramImage = {`;
    const content = JSON.stringify([code, maps]);
    const same = codeWords.get(content);
    if (same !== undefined) return `${head} ...${same}, name: '${name}' };\n`;
    codeWords.set(content, word);
    const lines = code.match(new RegExp(`.{1,${LINE}}`, 'g')) ?? [];
    const pairs = maps.map(([at, map]) => `[${at}, '${map}'],`);
    const mapLines = Array.from({ length: Math.ceil(pairs.length / MAPS_OF_LINE) }, (_, line) =>
      pairs.slice(line * MAPS_OF_LINE, (line + 1) * MAPS_OF_LINE).join(' '),
    );
    return [
      head,
      `  name: '${name}',`,
      '  code: [',
      ...lines.map((line) => `    '${line}',`),
      "  ].join(''),",
      '  maps: [',
      ...mapLines.map((line) => `    ${line}`),
      '  ],',
      '};',
      '',
    ].join('\n');
  });
  const head = `// Compiled from ${source} by \`npm run build:bpf\`: do not edit. ${compiler}\n// biome-ignore-all format: written by a program\nimport type { ProgramImage } from '${types}';\n`;
  return `${head}\n${constants.join('\n')}`;
}

const isCheck = process.argv.includes('--check');
let compiler = '';
try {
  compiler = /clang version \d+/.exec(execFileSync('clang', ['--version'], { encoding: 'utf8' }))?.[0] ?? '';
} catch {
  process.stderr.write('clang is not installed\n');
  process.exit(3);
}
const paths = FOLDERS.flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)));
for (const source of paths.filter((path) => path.endsWith('.c'))) {
  const target = source.replace(/\.c$/, '-images.ts');
  const made = imageFile(source, compiler, compile(source));
  if (!isCheck) writeFileSync(target, made);
  else {
    const committed = readFileSync(target, 'utf8');
    if (!committed.includes(compiler)) {
      process.stderr.write(`${source} was compiled by another than ${compiler}\n`);
      process.exit(3);
    }
    if (committed !== made) {
      process.stderr.write(`${source} has changed: npm run build:bpf\n`);
      process.exitCode = 1;
    }
  }
}
