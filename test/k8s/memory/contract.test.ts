import type { Clock } from '../../../src/base/clock.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { letTimePass, untilTimeHasPassed } from '../../base/support/passing-time.ts';
import { describeApiContract } from '../support/api-contract.ts';
import type { ApiHarness } from '../support/api-harness.ts';

/** A server in this process: no network, no waiting. */
class MemoryHarness implements ApiHarness {
  readonly clock: Clock;
  readonly transport: ApiTransport;
  readonly offersStreams = true;
  readonly until: ApiHarness['until'] = untilTimeHasPassed;
  readonly #api: MemoryApiServer;
  readonly #stopTime: () => void;

  constructor() {
    const clock = new ManualClock();
    this.clock = clock;
    this.#api = new MemoryApiServer({ clock, streamingLists: true });
    this.#api.tokens.add('admin');
    this.#api.tokens.add('powerless');
    for (const verb of ['list', 'watch', 'get', 'delete']) this.#api.deny(verb, 'configmaps', 'powerless');
    this.transport = this.access;
    this.#stopTime = letTimePass(clock);
  }

  get access(): ApiTransport {
    return this.#as('admin');
  }

  get powerless(): ApiTransport {
    return this.#as('powerless');
  }

  get unknown(): ApiTransport {
    return this.#as('unknown');
  }

  async serveWidgets(): Promise<void> {
    this.#api.serve({
      group: 'contract.test',
      version: 'v1',
      kind: 'Widget',
      plural: 'widgets',
      namespaced: true,
      hasStatus: true,
    });
  }

  async compact(): Promise<void> {
    this.#api.compact();
  }

  async kill(): Promise<void> {
    this.#api.down();
  }

  async restart(): Promise<void> {
    this.#api.up();
  }

  async close(): Promise<void> {
    this.#stopTime();
    await this.transport.close();
  }

  #as(token: string): ApiTransport {
    const transport = new MemoryApiTransport(this.#api);
    transport.token = token;
    return transport;
  }
}

describeApiContract('a server without a network', async () => new MemoryHarness());
