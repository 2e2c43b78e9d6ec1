import type { NodeConfiguration } from '../../../src/nodemanager/address-claims.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeHandler } from '../../../src/nodemanager/node-handler.ts';

interface Call {
  readonly word: string;
  readonly signal: AbortSignal;
  resolve(): void;
  reject(error: Error): void;
}

/**
 * A handler whose calls wait until the test ends them. Calls are recorded as words: `update a 1→2` (boot
 * ids).
 */
export class DeferredHandler implements NodeHandler {
  readonly name = 'deferred';
  readonly started: string[] = [];
  readonly #running: Call[] = [];

  nodeAdd(node: Node, signal: AbortSignal): Promise<void> {
    return this.#call(`add ${node.name} ${node.bootID}`, signal);
  }

  nodeUpdate(old: Node, node: Node, signal: AbortSignal): Promise<void> {
    return this.#call(`update ${node.name} ${old.bootID}→${node.bootID}`, signal);
  }

  nodeDelete(node: Node, signal: AbortSignal): Promise<void> {
    return this.#call(`delete ${node.name} ${node.bootID}`, signal);
  }

  nodeValidateImplementation(node: Node, signal: AbortSignal): Promise<void> {
    return this.#call(`validate ${node.name} ${node.bootID}`, signal);
  }

  get running(): readonly string[] {
    return this.#running.map(({ word }) => word);
  }

  get signals(): readonly AbortSignal[] {
    return this.#running.map(({ signal }) => signal);
  }

  /** Words started since the last call. */
  take(): string[] {
    return this.started.splice(0);
  }

  /**
   * Ends the oldest running call (of a node, if named) successfully, and lets its immediate consequences
   * happen.
   */
  async succeed(name?: string): Promise<void> {
    this.#takeCall(name).resolve();
    await settled();
  }

  async fail(name?: string): Promise<void> {
    this.#takeCall(name).reject(new Error('no netlink'));
    await settled();
  }

  #takeCall(name: string | undefined): Call {
    const index = this.#running.findIndex(({ word }) => name === undefined || word.split(' ')[1] === name);
    const [call] = this.#running.splice(index, index < 0 ? 0 : 1);
    if (call === undefined) throw new Error(`nothing runs for ${name ?? 'any node'}`);
    return call;
  }

  #call(word: string, signal: AbortSignal): Promise<void> {
    this.started.push(word);
    return new Promise((resolve, reject) => this.#running.push({ word, signal, resolve, reject }));
  }
}

/** A handler that also receives a configuration. */
export class ConfiguredHandler extends DeferredHandler implements NodeHandler {
  readonly configurations: NodeConfiguration[] = [];
  broken = false;

  nodeConfigurationChanged(configuration: NodeConfiguration): void {
    this.started.push('configuration');
    if (this.broken) throw new Error('no such device');
    this.configurations.push(configuration);
  }
}

/** Runs the reactions of settled promises. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
}
