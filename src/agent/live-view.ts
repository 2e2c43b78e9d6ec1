import type { Knowledge } from '../api/read-model.ts';
import type { Clock, Timer } from '../base/clock.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { unsubscribeOnce } from '../base/subscription.ts';
import type { Source } from '../identity/source.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';

import {
  type ChangeKind,
  type ChangeSign,
  type ChangeText,
  identityNames,
  nodeChangeText,
  prefixChangeText,
  serviceChangeText,
} from './change-text.ts';
import { totalsText } from './summary.ts';
import { alignColumns, printable, type Terminal, type Tone } from './terminal.ts';

/** Changes within so many milliseconds are shown together: below what a person sees as a delay. */
const GATHER_MS = 100;

/** Up to so many changes of a kind are shown one by one; of more, the first ones and how many there are. */
const SHOWN = 8;
/** With `all`. Only a reader that stands still lets more gather. */
const SHOWN_OF_ALL = 10_000;

const KINDS: readonly ChangeKind[] = ['node', 'service', 'ip'];
const PLURALS: Readonly<Record<ChangeKind, string>> = { ip: 'prefixes', node: 'nodes', service: 'services' };
const TONES: Readonly<Record<ChangeSign, Tone>> = { '+': 'added', '~': 'changed', '-': 'removed' };

/** Changes of one kind that wait to be shown: bounded, however many there are (I11). */
interface Gathered {
  readonly first: ChangeText[];
  readonly counts: Record<ChangeSign, number>;
}

function nothingGathered(): Gathered {
  return { first: [], counts: { '+': 0, '~': 0, '-': 0 } };
}

/** Options of {@link LiveView}. */
export interface LiveViewOptions {
  /** Shows every change of a burst. */
  readonly all?: boolean | undefined;
}

/**
 * Shows a person every change of what the agent knows, a line each with its time; a burst is cut to its beginning and
 * its size. Nothing is shown of what was there when it began to follow. While the reader of the terminal is far behind,
 * changes are only counted, and shown when it has caught up.
 */
export class LiveView {
  readonly #knowledge: Knowledge;
  readonly #terminal: Terminal;
  readonly #clock: Clock;
  readonly #gathered = new Map<ChangeKind, Gathered>();
  readonly #shown: number;
  #timer: Timer | undefined;

  constructor(knowledge: Knowledge, terminal: Terminal, clock: Clock, options: LiveViewOptions = {}) {
    this.#shown = options.all === true ? SHOWN_OF_ALL : SHOWN;
    this.#knowledge = knowledge;
    this.#terminal = terminal;
    this.#clock = clock;
  }

  /** Follows until it is unsubscribed; what was gathered by then is still shown. */
  follow(): Unsubscribe {
    let live = false;
    const gather = (change: ChangeText): void => {
      if (live) this.#gather(change);
    };
    const { ipcache, services, nodes } = this.#knowledge;
    const names = identityNames(this.#knowledge);
    const subscriptions = [
      nodes.subscribe(nodeListener(gather)),
      services.subscribe({ onEvents: (events) => events.map(serviceChangeText).forEach(gather) }),
      ipcache.subscribe({
        onChanges: (changes) => {
          if (!live) return;
          for (const change of changes)
            gather(prefixChangeText(change, names, sourceOf(ipcache, change.prefix)));
        },
      }),
    ];
    live = true;
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
      this.flush();
      this.#timer?.cancel(); // a reader that is far behind is not waited for
    });
  }

  /** A headline, after everything that happened before it. */
  say(text: string): void {
    this.flush();
    this.#terminal.line();
    this.#terminal.line(`${this.#time()} ${this.#terminal.paint('strong', printable(text))}`);
  }

  /** Shows now what was gathered, unless the reader is far behind. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#gathered.size === 0) return;
    if (this.#terminal.isBackedUp) {
      this.#timer = this.#clock.after(GATHER_MS, () => this.flush());
      return;
    }
    for (const kind of KINDS) this.#show(kind, this.#gathered.get(kind));
    this.#gathered.clear();
    this.#terminal.line(this.#terminal.paint('faint', `         ${totalsText(this.#knowledge)}`));
  }

  #gather(change: ChangeText): void {
    const gathered = this.#gathered.get(change.kind) ?? nothingGathered();
    this.#gathered.set(change.kind, gathered);
    gathered.counts[change.sign]++;
    if (gathered.first.length < this.#shown) gathered.first.push(change);
    this.#timer ??= this.#clock.after(GATHER_MS, () => this.flush());
  }

  #show(kind: ChangeKind, gathered: Gathered | undefined): void {
    if (gathered === undefined) return;
    const { first, counts } = gathered;
    const lines = alignColumns(
      first.map(({ subject, detail }) => [kind, printable(subject), printable(detail)]),
    );
    const time = this.#time();
    for (const [index, { sign }] of first.entries()) {
      this.#terminal.line(`${time} ${this.#terminal.paint(TONES[sign], `${sign} ${lines[index] ?? ''}`)}`);
    }
    const rest = counts['+'] + counts['~'] + counts['-'] - first.length;
    if (rest === 0) return;
    const all = `${counts['+']} came, ${counts['~']} changed, ${counts['-']} went`;
    this.#terminal.line(`         … and ${rest} more ${PLURALS[kind]}: in all ${all}`);
  }

  #time(): string {
    return new Date(this.#clock.wallTime()).toTimeString().slice(0, 8);
  }
}

/** The source of what counts for a prefix: an endpoint hides the CIDR of its single address. */
function sourceOf(ipcache: Knowledge['ipcache'], prefix: string): Source | undefined {
  const address = /^(.*)\/(?:32|128)$/.exec(prefix)?.[1];
  return ((address && ipcache.get(address)) || ipcache.get(prefix))?.source;
}

function nodeListener(gather: (change: ChangeText) => void): NodeHandler {
  return {
    name: 'live-view',
    nodeAdd: (node) => gather(nodeChangeText(undefined, node)),
    nodeUpdate: (old, node) => gather(nodeChangeText(old, node)),
    nodeDelete: (node) => gather(nodeChangeText(node, undefined)),
  };
}
