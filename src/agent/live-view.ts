import type { EngineViews } from '../api/read-model.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { nounOf } from '../base/show-value.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { unsubscribeOnce } from '../base/subscription.ts';
import {
  type ChangeKind,
  type ChangeSign,
  type ChangeText,
  identityNames,
  nodeChangeText,
  prefixChangeText,
  serviceChangeText,
} from '../client/change-text.ts';
import { totalsText } from '../client/summary.ts';
import type { Source } from '../model/source.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';
import { alignColumns, printable, type Terminal, type Tone } from '../process/terminal.ts';

/** Changes within this time are shown together. A person does not notice a shorter delay. */
const COALESCE_MS = 100;

/** Maximum number of changes of a kind that are shown individually. The others are only counted. */
const SHOWN = 8;
/** The same with `all`. Reached only if the reader has stopped reading. */
const SHOWN_OF_ALL = 10_000;

const KINDS: readonly ChangeKind[] = ['node', 'service', 'ip'];
const NOUNS: Readonly<Record<ChangeKind, readonly [string, string?]>> = {
  ip: ['prefix', 'prefixes'],
  node: ['node'],
  service: ['service'],
};
const TONES: Readonly<Record<ChangeSign, Tone>> = { '+': 'added', '~': 'changed', '-': 'removed' };

/** Pending changes of one kind. Bounded for any number of changes (I11). */
interface CoalescedChange {
  readonly first: ChangeText[];
  readonly counts: Record<ChangeSign, number>;
}

function nothingGathered(): CoalescedChange {
  return { first: [], counts: { '+': 0, '~': 0, '-': 0 } };
}

/** Options of {@link LiveView}. */
export interface LiveViewOptions {
  /** Shows all changes of a burst. */
  readonly all?: boolean | undefined;
}

/**
 * Shows each change of the agent's state in one line with its time. Of a burst it shows the first changes and the number of the
 * others. The state at the time of subscribing is not shown. While the reader of the terminal is far behind, changes are only
 * counted; they are shown when it has caught up.
 */
export class LiveView {
  readonly #knowledge: EngineViews;
  readonly #terminal: Terminal;
  readonly #clock: Clock;
  readonly #coalesced = new Map<ChangeKind, CoalescedChange>();
  readonly #shown: number;
  #timer: Timer | undefined;

  constructor(knowledge: EngineViews, terminal: Terminal, clock: Clock, options: LiveViewOptions = {}) {
    this.#shown = options.all === true ? SHOWN_OF_ALL : SHOWN;
    this.#knowledge = knowledge;
    this.#terminal = terminal;
    this.#clock = clock;
  }

  /** Follows until the caller unsubscribes. Pending changes are shown then. */
  follow(): Unsubscribe {
    let live = false;
    const gather = (change: ChangeText): void => {
      if (live) this.#coalesce(change);
    };
    const { ipcache, services, nodes } = this.#knowledge;
    const names = identityNames(this.#knowledge);
    const subscriptions = [
      nodes.subscribe(nodeListener(gather)),
      services.subscribe({ onEvents: (events) => events.map(serviceChangeText).forEach(gather) }),
      ipcache.subscribe(
        {
          onChanges: (changes) => {
            for (const change of changes)
              gather(prefixChangeText(change, names, sourceOf(ipcache, change.prefix)));
          },
        },
        { replay: false },
      ),
    ];
    live = true;
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
      this.flush();
      this.#timer?.cancel(); // does not wait for a reader that is far behind
    });
  }

  /** Shows a headline, after all changes before it. */
  print(text: string): void {
    this.flush();
    this.#terminal.line();
    this.#terminal.line(`${this.#time()} ${this.#terminal.paint('strong', printable(text))}`);
  }

  /** Shows the pending changes, unless the reader is far behind. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#coalesced.size === 0) return;
    if (this.#terminal.isBackedUp) {
      this.#timer = this.#clock.after(COALESCE_MS, () => this.flush());
      return;
    }
    for (const kind of KINDS) this.#show(kind, this.#coalesced.get(kind));
    this.#coalesced.clear();
    this.#terminal.line(this.#terminal.paint('faint', `         ${totalsText(this.#knowledge)}`));
  }

  #coalesce(change: ChangeText): void {
    const gathered = this.#coalesced.get(change.kind) ?? nothingGathered();
    this.#coalesced.set(change.kind, gathered);
    gathered.counts[change.sign]++;
    if (gathered.first.length < this.#shown) gathered.first.push(change);
    this.#timer ??= this.#clock.after(COALESCE_MS, () => this.flush());
  }

  #show(kind: ChangeKind, gathered: CoalescedChange | undefined): void {
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
    const all = `${counts['+']} added, ${counts['~']} changed, ${counts['-']} removed`;
    this.#terminal.line(`         … and ${rest} more ${nounOf(rest, ...NOUNS[kind])}: in total ${all}`);
  }

  #time(): string {
    return new Date(this.#clock.wallTime()).toTimeString().slice(0, 8);
  }
}

/** Returns the source of the effective claim on a prefix: an endpoint hides the CIDR of its address. */
function sourceOf(ipcache: EngineViews['ipcache'], prefix: string): Source | undefined {
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
