import type { ChangeType } from '../api/change-types.ts';
import type { EngineViews } from '../api/read-model.ts';
import type { Clock, Timer } from '../base/clock.ts';
import { nounOf } from '../base/show-value.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import {
  backendsText,
  type ChangeSign,
  type ChangeText,
  changeSign,
  identityNames,
  nodeChangeText,
  prefixChangeText,
} from '../client/change-text.ts';
import { totalsText } from '../client/summary.ts';
import type { IPCacheChange } from '../ipcache/types.ts';
import type { Source } from '../model/source.ts';
import { alignColumns, printable, type Terminal, type Tone } from '../process/terminal.ts';
import { changedBackends, type ServiceEvent } from '../servicecache/events.ts';

/** Changes within this time are shown together. A person does not notice a shorter delay. */
const COALESCE_MS = 100;

/** Maximum number of individually shown changes of a kind. The others are only counted. */
const MAX_SHOWN = 8;
/** The same maximum with the option `all`. It is reached only if the output is not read any more. */
const MAX_SHOWN_ALL = 10_000;

const KINDS: readonly ChangeType[] = ['node', 'service', 'ip'];
const NOUNS: Readonly<Record<ChangeType, readonly [string, string?]>> = {
  ip: ['prefix', 'prefixes'],
  node: ['node'],
  service: ['service'],
};
const TONES: Readonly<Record<ChangeSign, Tone>> = { '+': 'added', '~': 'changed', '-': 'removed' };

/** Receives each change. `text` is called only if the change is shown. */
type OnChange = (kind: ChangeType, sign: ChangeSign, text: () => ChangeText) => void;

/** Pending changes of one kind. Bounded for any number of changes (I11). */
interface PendingChanges {
  /** The first changes, which are shown. */
  readonly first: ChangeText[];
  /** Number of all changes, by sign. */
  readonly counts: Record<ChangeSign, number>;
}

/**
 * Shows each change of the agent's state in one line with its time. In a burst, it shows the first changes of each kind
 * and the number of the others. The state at the time of subscribing is not shown. While the reader of the output is
 * far behind, all changes are collected like one burst, and shown when the reader has caught up.
 */
export class LiveView {
  readonly #views: EngineViews;
  readonly #terminal: Terminal;
  readonly #clock: Clock;
  readonly #pending = new Map<ChangeType, PendingChanges>();
  /** Maximum number of individually shown changes of a kind. */
  readonly #maxShown: number;
  #timer: Timer | undefined;

  /** @param all if true, all changes of a burst are shown */
  constructor(views: EngineViews, terminal: Terminal, clock: Clock, all = false) {
    this.#maxShown = all ? MAX_SHOWN_ALL : MAX_SHOWN;
    this.#views = views;
    this.#terminal = terminal;
    this.#clock = clock;
  }

  /**
   * Shows changes until the caller unsubscribes, which also shows the pending changes, even if the reader is far
   * behind.
   */
  follow(): Unsubscribe {
    // The replay of the current state is not shown.
    let isLive = false;
    const onChange: OnChange = (kind, sign, text) => {
      if (isLive) this.#addPending(kind, sign, text);
    };
    const { ipcache, services, nodes } = this.#views;
    const nameOf = identityNames(this.#views);
    const onChanges = (changes: readonly IPCacheChange[]): void => {
      for (const change of changes) {
        const text = (): ChangeText => prefixChangeText(change, nameOf, sourceOf(ipcache, change.prefix));
        onChange('ip', changeSign(change.old, change.new), text);
      }
    };
    const subscriptions = [
      nodes.subscribe({
        name: 'live-view',
        nodeAdd: (node) => onChange('node', '+', () => nodeChangeText(undefined, node)),
        nodeUpdate: (old, node) => onChange('node', '~', () => nodeChangeText(old, node)),
        nodeDelete: (node) => onChange('node', '-', () => nodeChangeText(node, undefined)),
      }),
      services.subscribe({
        onEvents: (events) => {
          for (const event of events)
            onChange('service', serviceChangeSign(event), () => serviceChangeText(event));
        },
      }),
      ipcache.subscribe({ onChanges }, { replay: false }),
    ];
    isLive = true;
    return unsubscribeOnce(() => {
      for (const unsubscribe of subscriptions) unsubscribe();
      this.#timer?.cancel();
      this.#showPending();
    });
  }

  /** Shows the pending changes, then a headline. If the reader is far behind, shows only the headline. */
  print(text: string): void {
    this.flush();
    this.#terminal.line();
    this.#terminal.line(`${this.#time()} ${this.#terminal.paint('strong', printable(text))}`);
  }

  /** Shows the pending changes, unless the reader is far behind. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#pending.size > 0 && this.#terminal.isBackedUp)
      this.#timer = this.#clock.after(COALESCE_MS, () => this.flush());
    else this.#showPending();
  }

  #showPending(): void {
    if (this.#pending.size === 0) return;
    for (const kind of KINDS) this.#show(kind, this.#pending.get(kind));
    this.#pending.clear();
    this.#terminal.line(this.#terminal.paint('faint', `         ${totalsText(this.#views)}`));
  }

  #addPending(kind: ChangeType, sign: ChangeSign, text: () => ChangeText): void {
    const pending = this.#pending.get(kind) ?? { first: [], counts: { '+': 0, '~': 0, '-': 0 } };
    this.#pending.set(kind, pending);
    pending.counts[sign]++;
    if (pending.first.length < this.#maxShown) pending.first.push(text());
    this.#timer ??= this.#clock.after(COALESCE_MS, () => this.flush());
  }

  #show(kind: ChangeType, pending: PendingChanges | undefined): void {
    if (pending === undefined) return;
    const { first, counts } = pending;
    const lines = alignColumns(first.map(({ subject, detail }) => [kind, subject, detail]));
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
  const endpoint = address === undefined ? undefined : ipcache.get(address);
  return (endpoint ?? ipcache.get(prefix))?.source;
}

/** Maximum number of backends listed by address. If there are more, only their number is shown. */
const MAX_NAMED_BACKENDS = 3;

function namedBackends(sign: string, addresses: readonly string[]): string[] {
  if (addresses.length === 0) return [];
  if (addresses.length > MAX_NAMED_BACKENDS) return [`${sign}${addresses.length}`];
  return addresses.map((address) => `${sign}${address}`);
}

function backendDifference(event: ServiceEvent): string {
  const added: string[] = [];
  const removed: string[] = [];
  for (const { before, after } of changedBackends(event)) {
    if (before === undefined && after !== undefined) added.push(after.address);
    if (after === undefined && before !== undefined) removed.push(before.address);
  }
  return [...namedBackends('+', added), ...namedBackends('-', removed)].join(' ');
}

function serviceChangeSign({ action, oldEndpoints, endpoints }: ServiceEvent): ChangeSign {
  return changeSign(oldEndpoints, action === 'delete' ? undefined : endpoints);
}

/** Returns a service event in words. */
export function serviceChangeText(event: ServiceEvent): ChangeText {
  const { backends } = event.endpoints;
  const sign = serviceChangeSign(event);
  const subject = `${event.id.namespace}/${event.id.name}`;
  const detail = backendsText(backends.values());
  if (sign !== '~') return { sign, kind: 'service', subject, detail };
  const difference = backendDifference(event);
  const changedParts = difference === '' ? 'ports, addresses or annotations' : difference;
  return { sign, kind: 'service', subject, detail: `${changedParts}, now ${detail}` };
}
