import type fc from 'fast-check';
import type { NodeConfiguration } from '../../../src/nodemanager/address-claims.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeHandler } from '../../../src/nodemanager/node-handler.ts';

/** The result of a call: it works; it fails without effect; it works but fails. */
export type Mood = 'works' | 'fails' | 'works-but-fails';

/** Name of the configuration among the running calls. */
const CONFIGURATION = 'the configuration';

/**
 * A datapath whose calls end, successfully or not, when a scheduler says so. Its content is a set of
 * versions, like routes: a call that fails halfway leaves several versions of a node.
 */
export class ScheduledHandler implements NodeHandler {
  /** Present versions by node. */
  readonly inPlace: Map<string, Set<Node>> = new Map();
  readonly complaints: string[] = [];
  /** The last configuration that was delivered successfully. */
  configuration: NodeConfiguration | undefined;
  /** Set at the end: later calls are violations. */
  ended = false;
  readonly #scheduler: fc.Scheduler;
  readonly #mood: () => Mood;
  readonly #limit: number;
  readonly #running = new Map<string, AbortSignal>();

  constructor(scheduler: fc.Scheduler, limit: number, mood: () => Mood) {
    this.#scheduler = scheduler;
    this.#limit = limit;
    this.#mood = mood;
  }

  nodeAdd(node: Node, signal: AbortSignal): Promise<void> {
    return this.#callNode('add', node, signal, (versions) => versions.add(node));
  }

  nodeUpdate(old: Node, node: Node, signal: AbortSignal): Promise<void> {
    if (!this.inPlace.has(old.fullName)) this.complaints.push(`${old.fullName}: update before add`);
    return this.#callNode('update', node, signal, (versions) => {
      remove(versions, old);
      versions.add(node);
    });
  }

  nodeDelete(node: Node, signal: AbortSignal): Promise<void> {
    return this.#callNode('delete', node, signal, (versions) => remove(versions, node));
  }

  nodeValidateImplementation(node: Node, signal: AbortSignal): Promise<void> {
    return this.#callNode('validate', node, signal, () => {});
  }

  nodeConfigurationChanged(configuration: NodeConfiguration, signal: AbortSignal): Promise<void> {
    if (this.#running.size > 0) this.complaints.push(`${CONFIGURATION}: told while other calls run`);
    this.configuration = undefined;
    return this.#call(CONFIGURATION, signal, () => {
      this.configuration = configuration;
    });
  }

  /** True if every running call has been aborted. */
  get allAborted(): boolean {
    return [...this.#running.values()].every(({ aborted }) => aborted);
  }

  /** Returns the present nodes; records a violation for nodes with several versions. */
  view(): ReadonlyMap<string, Node> {
    const view = new Map<string, Node>();
    for (const [name, versions] of this.inPlace) {
      for (const version of versions) {
        if (view.get(name)?.equals(version) === false)
          this.complaints.push(`${name}: two versions are in place`);
        view.set(name, version);
      }
    }
    return view;
  }

  #callNode(
    what: string,
    { fullName }: Node,
    signal: AbortSignal,
    work: (versions: Set<Node>) => void,
  ): Promise<void> {
    if (this.configuration === undefined)
      this.complaints.push(`${fullName}: ${what} before ${CONFIGURATION}`);
    if (this.#running.has(fullName)) this.complaints.push(`${fullName}: ${what} while another call runs`);
    if (this.#running.size >= this.#limit)
      this.complaints.push(`${fullName}: more than ${this.#limit} calls at a time`);
    return this.#call(fullName, signal, () => {
      const versions = this.inPlace.get(fullName) ?? new Set();
      work(versions);
      if (versions.size === 0) this.inPlace.delete(fullName);
      else this.inPlace.set(fullName, versions);
    });
  }

  async #call(subject: string, signal: AbortSignal, work: () => void): Promise<void> {
    if (signal.aborted || this.ended) this.complaints.push(`${subject}: called after the end`);
    this.#running.set(subject, signal);
    await this.#scheduler.schedule(Promise.resolve(), subject);
    this.#running.delete(subject);
    const mood = this.#mood();
    if (mood === 'works' || (mood === 'works-but-fails' && subject !== CONFIGURATION)) work();
    if (mood !== 'works') throw new Error('the datapath is not in the mood');
  }
}

function remove(versions: Set<Node>, node: Node): void {
  for (const version of versions) if (version.equals(node)) versions.delete(version);
}
