import { Map as ImmutableMap, List } from 'immutable';
import type { ClusterService } from '../src/model/cluster-service.ts';
import type { PortProtocol } from '../src/net/port.ts';
import { type Backend, createBackend, type EndpointSlice, type Ports } from '../src/servicecache/backend.ts';
import { createService, type Service, type ServicePort } from '../src/servicecache/service.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import type { ServiceID } from '../src/servicecache/service-id.ts';

/** Parameters of the bench. */
export interface ServiceBenchOptions {
  /** Number of services in the rows "of n", which exceed the caches of the CPU; default 5,000. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/** One row: operation, time and budget. */
export interface ServiceBenchRow {
  readonly what: string;
  /** Microseconds per operation: the median over the chunks of all warm runs. */
  readonly micros: number;
  /** The same for the fastest tenth of the chunks, which is close to the result on an idle machine. */
  readonly best: number;
  readonly budget?: number | undefined;
}

const SLICE_SIZE = 100;
const RUNS = 6;
/** Minimum number of operations for each row, in several runs. */
const OPERATIONS = 12_000;
const TCP = 6;

/** Returns a string that is not a slice of another and has no hash yet, as if it had just been parsed. */
function fresh(text: string): string {
  return Buffer.from(text).toString('latin1');
}

function idOf(index: number): ServiceID {
  return { namespace: fresh(`namespace-${index % 100}`), name: fresh(`service-${index}`) };
}

function addressOf(index: number): string {
  return fresh(`10.${(index >>> 16) & 255}.${(index >>> 8) & 255}.${index & 255}`);
}

function portsOf(port: number): Ports {
  return ImmutableMap<string, PortProtocol>({ http: { port, protocol: TCP } });
}

function serviceOf(index: number, fields: Partial<Service> = {}): Service {
  return createService({
    id: idOf(index),
    addressing: 'assigned',
    clusterIPs: List([addressOf(index + 0xac10_0000)]),
    ports: ImmutableMap<string, ServicePort>({ http: { port: 80, protocol: TCP, nodePort: 0 } }),
    labels: ImmutableMap<string, string>({ app: fresh(`app-${index}`) }),
    selector: ImmutableMap<string, string>({ app: fresh(`app-${index}`) }),
    ...fields,
  });
}

/** A slice with backends from `first` on; `changed` of them run on another node than by default. */
function sliceOf(
  index: number,
  name: string,
  first: number,
  size: number,
  changed = 0,
  run = 0,
): EndpointSlice {
  const ports = portsOf(8080);
  const backends = ImmutableMap<string, Backend>().withMutations((map) => {
    for (let i = 0; i < size; i++) {
      const address = addressOf(first + i);
      const nodeName = i < changed ? fresh(`other-${run}`) : fresh('node');
      map.set(address, createBackend({ address, ports, nodeName }));
    }
  });
  return { service: idOf(index), name: fresh(name), backends, notReady: ImmutableMap() };
}

/** The offer of a remote cluster as its decoder returns it: native maps, nothing shared. */
function offerOf(index: number, cluster: string, first: number, size: number, port = 8080): ClusterService {
  const backends = new Map<string, ReadonlyMap<string, { port: number; protocol: number }>>();
  for (let i = 0; i < size; i++) {
    backends.set(addressOf(first + i), new Map([[fresh('http'), { port, protocol: TCP }]]));
  }
  return {
    cluster: fresh(cluster),
    ...idOf(index),
    frontends: new Map(),
    backends,
    labels: new Map(),
    selector: new Map(),
    includeExternal: true,
    shared: true,
    clusterID: 2,
  };
}

function cacheWithListener(): ServiceCache {
  const cache = new ServiceCache({ clusterName: 'own' });
  const count = { events: 0 };
  cache.subscribe({
    onEvents: (events) => {
      count.events += events.length;
    },
  });
  return cache;
}

/** The measured work. */
interface Scenario {
  readonly what: string;
  readonly budget?: number | undefined;
  readonly operations: number;
  /** Creates the state of a run. The result creates the input of one operation, and the measured call. */
  prepare(run: number): (operation: number) => () => void;
}

/**
 * Number of operations that are measured together. Their inputs are created just before, as an input is decoded just
 * before it is applied. The number is small, so that they are still in the caches of the CPU.
 */
const CHUNK = 20;

/** Returns the quantile of the values. */
function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
}

/** Returns the microseconds per operation of each chunk of one run. */
function timeRun(scenario: Scenario, run: number): readonly number[] {
  const prepared = scenario.prepare(run);
  const times: number[] = [];
  for (let done = 0; done < scenario.operations; done += CHUNK) {
    const calls = Array.from({ length: CHUNK }, (_, at) => prepared(done + at));
    const start = process.hrtime.bigint();
    for (const call of calls) call();
    times.push(Number(process.hrtime.bigint() - start) / 1000 / CHUNK);
  }
  return times;
}

/**
 * Returns the median over the chunks of all runs without the first third, which warms up. It is robust against other
 * load.
 */
function measure(scenario: Scenario): ServiceBenchRow {
  const runs = Math.max(RUNS, Math.ceil(OPERATIONS / scenario.operations));
  const times = Array.from({ length: runs }, (_, run) => timeRun(scenario, run));
  const warm = times.slice(Math.ceil(runs / 3)).flat();
  const { what, budget } = scenario;
  return { what, micros: quantile(warm, 0.5), best: quantile(warm, 0.1), budget };
}

/**
 * Returns a function that creates a value on its first call and keeps it. A new value in each run would measure the
 * garbage collector.
 */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** For orientation: the cost of a native map in the same run. */
function baselineScenario(n: number): Scenario {
  return {
    what: 'Map.set of a fresh key, for orientation',
    operations: n,
    prepare: () => {
      const map = new Map<string, number>();
      return (at) => {
        const key = fresh(`namespace-${at % 100}/service-${at}`);
        return () => {
          map.set(key, at);
        };
      };
    },
  };
}

/** Number of services that stay in the caches of the CPU, as in the benchmarks of the budgets. */
const HOT = 200;

/** The rows with a budget: services of 10 backends, `n` of them in turn. */
function budgetScenarios(n: number): readonly Scenario[] {
  const hot = n === HOT;
  const label = hot ? '10 backends:' : `10 backends, one of ${n} services:`;
  const limit = (micros: number): number | undefined => (hot ? micros : undefined);
  const filled = once(() => {
    const cache = cacheWithListener();
    for (let index = 0; index < n; index++) {
      cache.updateService(serviceOf(index, { global: true }));
      cache.updateEndpoints(sliceOf(index, 'slice', index * 10, 10));
    }
    return cache;
  });
  const update = (cache: ServiceCache, index: number): (() => void) => {
    const [service, slice] = [serviceOf(index, { global: true }), sliceOf(index, 'slice', index * 10, 10)];
    return () => {
      cache.updateService(service);
      cache.updateEndpoints(slice);
    };
  };
  return [
    {
      what: `${label} update + endpoints add`,
      budget: limit(4),
      operations: n,
      prepare: () => {
        const cache = cacheWithListener();
        return (at) => update(cache, at);
      },
    },
    {
      what: `${label} external merge, 3 clusters in turn`,
      budget: limit(4),
      operations: n * 3,
      prepare: (run) => {
        const cache = filled();
        return (at) => {
          const [index, cluster] = [Math.floor(at / 3) % n, at % 3];
          const offer = offerOf(index, `c${cluster}`, (cluster + 1) * 1_000_000 + index * 10, 10, 80 + run);
          return () => {
            cache.mergeExternalServiceUpdate(offer);
          };
        };
      },
    },
    {
      what: `${label} unchanged update + endpoints`,
      budget: limit(2),
      operations: n,
      prepare: () => {
        const cache = filled();
        return (at) => update(cache, at % n);
      },
    },
  ];
}

/** One service of `size` backends in slices of 100, and the cost of a change of one slice. */
function sizeScenarios(size: number): readonly Scenario[] {
  const slices = size / SLICE_SIZE;
  const filledWith = (fields: Partial<Service>): ServiceCache => {
    const cache = cacheWithListener();
    cache.updateService(serviceOf(0, { global: true, ...fields }));
    for (let at = 0; at < slices; at++) {
      cache.updateEndpoints(sliceOf(0, `slice-${at}`, at * SLICE_SIZE, SLICE_SIZE));
    }
    return cache;
  };
  const plain = once(() => filledWith({}));
  const steered = once(() => filledWith({ affinity: 'local' }));
  const row = (what: string, changed: number, filled = plain, inBatch = false): Scenario => ({
    what: `${size} backends: ${what}`,
    operations: 1000,
    prepare: (run) => {
      const cache = filled();
      return (at) => {
        const index = at % slices;
        const slice = sliceOf(0, `slice-${index}`, index * SLICE_SIZE, SLICE_SIZE, changed, run * 1000 + at);
        const update = (): unknown => cache.updateEndpoints(slice);
        return () => {
          if (inBatch) cache.batch(update);
          else update();
        };
      };
    },
  });
  return [
    row('slice unchanged', 0),
    row('slice with 1 of 100 changed', 1),
    row('slice with 1 of 100 changed, in a batch', 1, plain, true),
    row('slice with 100 of 100 changed', SLICE_SIZE),
    row('slice with 1 changed, affinity local', 1, steered),
    {
      what: `${size} backends: remote offer of 100 comes and goes`,
      operations: 400,
      prepare: () => {
        const cache = plain();
        return (at) => {
          const offer = offerOf(0, `cluster-${at % 250}`, 5_000_000 + at * SLICE_SIZE, SLICE_SIZE);
          return () => {
            cache.mergeExternalServiceUpdate(offer);
            cache.mergeExternalServiceDelete(offer);
          };
        };
      },
    },
  ];
}

/** A service that 250 clusters share, 40 backends each, and the cost of a change of the offer of one cluster. */
function meshScenario(): Scenario {
  const [clusters, size] = [250, 40];
  const filled = once(() => {
    const cache = cacheWithListener();
    cache.updateService(serviceOf(0, { global: true }));
    for (let at = 0; at < clusters; at++) {
      cache.mergeExternalServiceUpdate(offerOf(0, `cluster-${at}`, at * size, size));
    }
    return cache;
  });
  return {
    what: `${clusters} clusters, ${size} backends each: the offer of one changed`,
    operations: 1000,
    prepare: (run) => {
      const cache = filled();
      return (at) => {
        const index = at % clusters;
        const offer = offerOf(0, `cluster-${index}`, index * size, size, 9000 + run * 10 + (at >> 8));
        return () => {
          cache.mergeExternalServiceUpdate(offer);
        };
      };
    },
  };
}

function show(row: ServiceBenchRow): string {
  const budget =
    row.budget === undefined ? '' : `   budget ${row.budget} µs${row.micros > row.budget ? '  OVER' : ''}`;
  return `${row.what.padEnd(72)} ${row.micros.toFixed(2).padStart(9)} µs, best ${row.best.toFixed(2).padStart(7)} µs${budget}`;
}

/**
 * Measures the service cache: the rows with a budget, and the cost of a change by the size of the
 * service. Parsing and decoding are not measured; every string is fresh; one listener counts.
 */
export async function benchServices(options: ServiceBenchOptions = {}): Promise<readonly ServiceBenchRow[]> {
  const { n = 5_000, json = false } = options;
  const scenarios = [
    baselineScenario(n),
    ...budgetScenarios(HOT),
    ...budgetScenarios(n),
    ...[100, 1_000, 10_000].flatMap(sizeScenarios),
    meshScenario(),
  ];
  const rows: ServiceBenchRow[] = [];
  for (const scenario of scenarios) {
    const row = measure(scenario);
    rows.push(row);
    if (!json) process.stdout.write(`${show(row)}\n`);
  }
  return rows;
}
