import type {
  DatapathDiffDocument,
  DatapathDocument,
  DatapathStepDocument,
  DatapathTableDocument,
} from '../api/datapath-document.ts';
import type { StatusDocument } from '../api/status-document.ts';
import { counted } from '../base/show-value.ts';
import type { CleanOutcome } from '../datapath/linux/clean-tables.ts';
import type { ProbeAnswer } from '../datapath/linux/probe.ts';
import { InputError } from '../process/input-error.ts';
import { printable } from '../process/terminal.ts';
import { type Answer, type Column, documentTable, type Question, table } from './answer.ts';

const NO_DATAPATH = 'no datapath is configured: start the agent with --datapath linux';

/** Fill level at which a map is reported as nearly full. */
const NEARLY_FULL = 0.9;

const COLUMNS: readonly Column<DatapathTableDocument>[] = [
  { title: 'TABLE', cell: ({ name }) => name },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'ITEMS', cell: ({ actual }) => String(actual) },
  { title: 'WANTED', cell: ({ desired }) => String(desired) },
  { title: 'CAPACITY', cell: ({ capacity }) => String(capacity ?? '-') },
  { title: 'FULL', cell: ({ pressure }) => (pressure === undefined ? '-' : percent(pressure)) },
  { title: 'PENDING', cell: ({ pending }) => String(pending) },
  { title: 'UNCONFIRMED', cell: ({ unconfirmed }) => String(unconfirmed) },
  { title: 'NO ROOM', cell: ({ noRoom }) => String(noRoom) },
  { title: 'FAILING', cell: ({ failing }) => String(failing) },
  { title: 'REPAIRED', cell: ({ repairs }) => String(repairs) },
  { title: 'WRITTEN', cell: ({ upserts }) => String(upserts), wide: true },
  { title: 'DELETED', cell: ({ deletes }) => String(deletes), wide: true },
];

function percent(part: number): string {
  return `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %`;
}

function placeLine({ kernel, layout, pinFolder, cgroup, dryRun }: DatapathDocument): string {
  const where = `Linux ${kernel}, maps of ${layout} in ${pinFolder}, cgroup ${cgroup ?? '-'}`;
  return printable(dryRun ? `${where}; dry run, nothing is written` : where);
}

/** Returns the lines of a table of parts or pieces. Each has a row for each missing requirement. */
function partTable(
  title: 'PART' | 'PIECE',
  parts: readonly { readonly name: string; readonly state: string; readonly missing: readonly string[] }[],
): readonly string[] {
  const rows = parts.flatMap(({ name, state, missing: [first = '', ...others] }) => [
    [name, state, first],
    ...others.map((reason) => ['', '', reason]),
  ]);
  return table([[title, 'STATE', ''], ...rows], { wide: true });
}

/** Returns the status of the datapath as text: parts, missing requirements and the state of the kernel. */
function datapathLines(datapath: DatapathDocument): readonly string[] {
  const { parts, tables, waitsFor, failures } = datapath;
  const unconfirmed = tables.reduce((sum, table) => sum + table.unconfirmed, 0);
  const waits = waitsFor.map((reason) => `  ${reason}`);
  return [
    placeLine(datapath),
    '',
    ...partTable('PART', parts),
    ...(tables.length === 0 ? [] : ['', ...documentTable(COLUMNS, tables, { wide: false })]),
    ...tables.flatMap(({ name, waiting }) =>
      waiting === 0
        ? []
        : [
            `${name}: ${counted(waiting, 'delete waits', 'deletes wait')} until no other table refers to the keys`,
          ],
    ),
    ...tables.flatMap(({ name, failures: failing }) =>
      failing.map(
        ({ key, reason, attempts }) => `${name}: ${key}: ${reason}, ${counted(attempts, 'attempt')}`,
      ),
    ),
    ...tables.flatMap(({ name, maps }) =>
      maps
        .filter((map) => map.used >= NEARLY_FULL * map.capacity)
        .map((map) => `${name}: map ${map.name} has ${map.used} of ${map.capacity} entries`),
    ),
    ...failures,
    ...(waits.length === 0 || unconfirmed === 0
      ? []
      : [
          '',
          `Not yet confirmed by a cache: ${counted(unconfirmed, 'item')} found at the start, kept until:`,
          ...waits,
        ]),
  ].map((line) => printable(line));
}

/** Returns true if all requested parts run and the kernel accepts all writes. */
function isHealthy({ parts, tables, failures }: DatapathDocument): boolean {
  return (
    failures.length === 0 &&
    parts.every(({ state, missing }) => state === 'off' || (state === 'running' && missing.length === 0)) &&
    tables.every(({ state }) => state !== 'degraded' && state !== 'unread')
  );
}

/** Returns the status of an agent's datapath, for `dpcache datapath status`. */
export const askDatapathStatus: Question = async (ask) => {
  const { datapath } = (await ask('/v1/status')) as StatusDocument;
  if (datapath === undefined) throw new InputError(NO_DATAPATH);
  return { json: datapath, lines: datapathLines(datapath), succeeded: isHealthy(datapath) };
};

/** Returns the pieces of a datapath that can run on this machine. `reason`: why no agent was asked. */
export function hostAnswer({ kernel, pieces, pinFolder, cgroup }: ProbeAnswer, reason: string): Answer {
  const rows = pieces.map(({ piece, missing }) => ({
    name: piece,
    state: missing.length === 0 ? 'available' : 'unavailable',
    missing,
  }));
  return {
    json: { kernel, pinFolder, cgroup, pieces },
    lines: [
      printable(`${reason}. Pieces of the datapath that could run on this machine:`),
      '',
      printable(`Linux ${kernel}, pins in ${pinFolder}, cgroup ${cgroup ?? '-'}`),
      '',
      ...partTable('PIECE', rows),
    ],
    succeeded: pieces.every(({ missing }) => missing.length === 0),
  };
}

/**
 * Returns a difference as one line: `ipcache + 10.1.2.3/32 identity 4`. `+`: missing in the kernel; `-`: missing in the
 * cache; `~`: different.
 */
function stepLine({ table: name, key, kernel, cache }: DatapathStepDocument): string {
  if (kernel === undefined) return printable(`${name} + ${key} ${cache}`);
  if (cache === undefined) return printable(`${name} - ${key} ${kernel}`);
  return printable(`${name} ~ ${key} ${kernel} → ${cache}`);
}

function stepLines({ total, steps }: DatapathDiffDocument): readonly string[] {
  const more = total - steps.length;
  return [...steps.map(stepLine), ...(more > 0 ? [`… and ${more} more`] : [])];
}

/**
 * Returns the differences between the kernel and the caches, for `dpcache datapath diff`. `succeeded`: true if there
 * are none.
 */
export const askDatapathDiff: Question = async (ask) => {
  const diff = (await ask('/v1/datapath/diff')) as DatapathDiffDocument;
  const lines = diff.total === 0 ? ['No differences.'] : stepLines(diff);
  return { json: diff, lines, succeeded: diff.total === 0 };
};

/** Removes the differences, for `dpcache datapath repair`, and returns them. */
export const askDatapathRepair: Question = async (ask) => {
  const repaired = (await ask('/v1/datapath/repair', {})) as DatapathDiffDocument;
  const lines =
    repaired.total === 0
      ? ['No differences: nothing was written.']
      : [...stepLines(repaired), `Repaired ${counted(repaired.total, 'item')}.`];
  return { json: repaired, lines, succeeded: true };
};

/**
 * Returns the question whether the agent writes to the pins of a folder: `succeeded` is true if it does. The JSON
 * contains the agent's process id.
 */
export function askUsesPins(pinFolder: string): Question {
  return async (ask) => {
    const { datapath } = (await ask('/v1/status')) as StatusDocument;
    const { pid } = (await ask('/healthz')) as { readonly pid: number };
    const succeeded = datapath?.pinFolder === pinFolder && !datapath.dryRun;
    return { json: { pid }, lines: [], succeeded };
  };
}

/** Returns the removed objects, for `dpcache datapath clean`. `succeeded`: true if all were removed. */
export function cleanAnswer({ removed, remaining }: CleanOutcome): Answer {
  const lines = removed.length === 0 ? ['Nothing to remove.'] : removed.map(printable);
  return { json: { removed, left: remaining }, lines, succeeded: remaining.length === 0 };
}
