import { parseServiceID } from '../../../src/k8s/parse-service.ts';
import type { EndpointSlice } from '../../../src/servicecache/backend.ts';
import type { ServiceEvent } from '../../../src/servicecache/events.ts';
import { formatFrontend, frontendsOf, type NodePortOptions } from '../../../src/servicecache/frontends.ts';
import { equalServices, type Service } from '../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { formatServiceID, parseServiceIDFrom, type ServiceID } from '../../../src/servicecache/service-id.ts';
import { FoldingListener } from '../../servicecache/support/folding-listener.ts';
import { NaiveServiceCache } from '../../servicecache/support/naive-service-cache.ts';
import { text } from '../../servicecache/support/plain.ts';
import { readEndpointSlice, readEndpointSliceID, readEndpoints, readService } from './recorded-objects.ts';
import type { ReplayTally } from './report.ts';
import {
  comparableProtocol,
  renderBackends,
  renderFrontend,
  renderService,
  upstreamOnlyFrontends,
} from './servicecache-render.ts';
import {
  clusterServiceOf,
  namesAlias,
  type TraceBackend,
  type TraceEndpoints,
  type TraceEvent,
  type TraceFrontend,
  type TraceScenario,
  type TraceStep,
} from './servicecache-trace.ts';

const NO_ID: ServiceID = { namespace: '', name: '' };

/** What one side has reported about a service. */
interface Told {
  readonly service: unknown;
  readonly endpoints: TraceEndpoints;
}

/** Replaces the protocol `NONE` by no protocol anywhere in a recorded value. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, entry]) => [
      name,
      name === 'protocol' && typeof entry === 'string' ? comparableProtocol(entry) : comparable(entry),
    ]),
  );
}

/**
 * Returns true if a backend has the ports of all candidates: slices of one address are merged here, as in
 * 1.17.
 */
function isMerged(ours: TraceBackend, candidates: readonly TraceBackend[]): boolean {
  const all = candidates.flatMap(({ ports }) => Object.entries(comparable(ports) as object));
  const names = new Set(all.map(([name]) => name));
  return (
    candidates.some(({ nodeName }) => nodeName === ours.nodeName) &&
    Object.keys(ours.ports).length === names.size &&
    Object.entries(ours.ports).every(([name, port]) =>
      all.some(([other, candidate]) => other === name && text(candidate) === text(port)),
    )
  );
}

/**
 * Returns the recorded endpoints, in which each ambiguous backend is replaced by ours if it is one of the
 * candidates or all of them merged.
 */
function disambiguate(expected: TraceEndpoints, actual: TraceEndpoints): TraceEndpoints {
  const backends = { ...expected.backends };
  for (const [ip, candidates] of Object.entries(expected.ambiguous ?? {})) {
    const ours = actual.backends[ip];
    const found = candidates.find((candidate) => text(comparable(candidate)) === text(ours)) ?? candidates[0];
    if (ours !== undefined && isMerged(ours, candidates)) backends[ip] = ours;
    else if (found !== undefined) backends[ip] = found;
  }
  return { backends };
}

function sameEndpoints(expected: TraceEndpoints, actual: TraceEndpoints): boolean {
  return text(comparable(disambiguate(expected, actual))) === text(actual);
}

/** Replays one scenario on our cache and on the naive one. */
class Replay {
  readonly #scenario: TraceScenario;
  readonly #tally: ReplayTally;
  readonly #nodePort: NodePortOptions;
  readonly #cache: ServiceCache;
  readonly #naive: NaiveServiceCache;
  readonly #listener = new FoldingListener();
  readonly #upstream = new Map<string, Told>();
  readonly #ours = new Map<string, Told>();
  readonly #ids = new Map<string, ServiceID>();
  /** Announced services that are not ready any more. From there on only their folds are compared. */
  readonly #unready = new Set<string>();
  /**
   * Services with an older object upstream than here, because it ignores updates of unsupported fields
   * and of annotations alone. This is no break until it announces such a service.
   */
  readonly #kept = new Map<string, Service>();
  #stopped: string | undefined;
  #step = 0;

  constructor(scenario: TraceScenario, tally: ReplayTally) {
    this.#scenario = scenario;
    this.#tally = tally;
    const { config } = scenario;
    this.#nodePort = { enabled: config.enableNodePort, ...config.nodePortAddresses };
    this.#cache = new ServiceCache({
      clusterName: config.clusterName,
      nodePort: this.#nodePort,
      enableIPv4: config.enableIPv4,
      enableIPv6: config.enableIPv6,
    });
    this.#naive = new NaiveServiceCache(config.clusterName, config.enableNodePort);
    this.#cache.subscribe(this.#listener);
  }

  run(): void {
    const { steps, firstBroken } = this.#scenario;
    for (const [index, step] of steps.entries()) {
      this.#step = index;
      this.#runStep(step, index < (firstBroken ?? steps.length));
    }
    this.#step = -1;
    if (firstBroken === null && this.#stopped === undefined) this.#compareFinal();
  }

  #runStep(step: TraceStep, recorded: boolean): void {
    if (step.panics === true) {
      // Upstream's state is unchanged, so ours must stay so too.
      this.#tally.skipped('upstream panics');
      return;
    }
    if (namesAlias(step)) this.#stopped ??= 'alias keys';
    const before = new Map(
      [...this.#ids.values()].map((id) => [formatServiceID(id), this.#upstreamService(id)]),
    );
    const returned = this.#apply(step);
    const events = this.#listener.take();
    if (!recorded) this.#tally.skipped('after firstBroken: own invariants');
    else if (this.#stopped !== undefined) this.#tally.skipped(this.#stopped);
    else {
      this.#tally.compared();
      this.#compareReturn(step, returned);
      this.#compareEvents(step, events, before);
    }
    this.#checkInvariants();
  }

  #known(id: ServiceID): Service | undefined {
    return this.#cache.explain(id)?.service;
  }

  /** The service as upstream has it: ours, without the updates that upstream ignores. */
  #upstreamService(id: ServiceID): Service | undefined {
    return this.#kept.get(formatServiceID(id)) ?? this.#known(id);
  }

  /** All services as upstream has them, by key. */
  #upstreamServices(): ReadonlyMap<string, Service> {
    return new Map([...this.#cache.services(), ...this.#kept]);
  }

  /** Applies the step to both caches. Returns the result in the form of traces. */
  #apply(step: TraceStep): unknown {
    switch (step.op) {
      case 'updateService':
        return this.#updateService(step.service);
      case 'deleteService': {
        const id = this.#note(parseServiceID(step.service).value);
        this.#kept.delete(formatServiceID(id));
        this.#cache.deleteService(id);
        this.#naive.deleteService(id);
        return undefined;
      }
      case 'updateEndpoints':
        return this.#updateSlice(readEndpoints(step.endpoints));
      case 'deleteEndpoints': {
        const id = this.#note(parseServiceID(step.endpoints).value);
        return this.#deleteSlice(id, id.name);
      }
      case 'updateEndpointSlice':
        return this.#updateSlice(readEndpointSlice(step.endpointSlice));
      case 'deleteEndpointSlice': {
        const slice = readEndpointSliceID(step.endpointSlice);
        return this.#deleteSlice(this.#note(slice?.service), slice?.name ?? '');
      }
      case 'mergeExternalServiceUpdate':
      case 'mergeExternalServiceDelete':
        return this.#merge(step);
      case 'getServiceIP':
        return this.#cache.getServiceIP(step.serviceID ?? NO_ID);
      case 'uniqueServiceFrontends':
        return this.#frontends();
      case 'parseServiceIDFrom':
        return parseServiceIDFrom(step.fqdn ?? '') ?? null;
      default:
        return { unknownOperation: step.op };
    }
  }

  #note(id: ServiceID | undefined): ServiceID {
    if (id !== undefined) this.#ids.set(formatServiceID(id), id);
    return id ?? NO_ID;
  }

  #updateService(object: unknown): unknown {
    const service = readService(object);
    if (service === undefined) return { serviceID: NO_ID };
    this.#note(service.id);
    const key = formatServiceID(service.id);
    const before = this.#kept.get(key) ?? this.#known(service.id);
    const outcome = this.#cache.updateService(service);
    this.#naive.updateService(service);
    this.#keep(key, before, this.#known(service.id));
    return { serviceID: outcome === 'unsupported' ? NO_ID : service.id };
  }

  /** Records the object that upstream keeps when it ignores an update. */
  #keep(key: string, before: Service | undefined, after: Service | undefined): void {
    this.#kept.delete(key);
    if (before === undefined) return;
    const { global, shared } = before;
    const ignored = after === undefined || equalServices(before, { ...after, global, shared });
    if (ignored && (after === undefined || !equalServices(before, after))) this.#kept.set(key, before);
  }

  #updateSlice(slice: EndpointSlice | undefined): unknown {
    if (slice === undefined) return undefined;
    this.#note(slice.service);
    this.#cache.updateEndpoints(slice);
    this.#naive.updateEndpoints(slice);
    return { serviceID: slice.service, endpoints: renderBackends(slice.backends) };
  }

  #deleteSlice(id: ServiceID, name: string): unknown {
    this.#cache.deleteEndpoints(id, name);
    this.#naive.deleteEndpoints(id, name);
    return { serviceID: id };
  }

  #merge(step: TraceStep): undefined {
    if (step.clusterService === undefined) return;
    const offer = clusterServiceOf(step.clusterService);
    this.#note({ namespace: offer.namespace, name: offer.name });
    if (step.op === 'mergeExternalServiceUpdate') {
      this.#cache.mergeExternalServiceUpdate(offer);
      this.#naive.mergeExternalServiceUpdate(offer);
    } else {
      this.#cache.mergeExternalServiceDelete(offer);
      this.#naive.mergeExternalServiceDelete(offer);
    }
  }

  #frontends(): readonly string[] {
    const found = new Set<string>(
      [...this.#cache.uniqueServiceFrontends()].map((each) => each.replace(/ANY$/, '')),
    );
    for (const service of this.#kept.values()) {
      for (const frontend of frontendsOf(service, this.#nodePort)) {
        if (frontend.kind === 'cluster-ip' || frontend.kind === 'node-port')
          found.add(formatFrontend(frontend));
      }
    }
    for (const service of this.#upstreamServices().values()) {
      for (const each of upstreamOnlyFrontends(service, this.#scenario.config, this.#nodePort))
        found.add(each);
    }
    return [...found].sort();
  }

  #mismatch(what: string, expected: unknown, actual: unknown): void {
    this.#tally.mismatch({ scenario: this.#scenario.name, step: this.#step, what, expected, actual });
  }

  #compareReturn(step: TraceStep, returned: unknown): void {
    if (step.op === 'getServiceIP') {
      this.#compareServiceIP(step);
      return;
    }
    const expected = comparable(step.returns);
    if (text(expected) !== text(returned)) this.#mismatch('returns', expected, returned);
  }

  /** Any recorded address is right. A service without an address does not exist for us. */
  #compareServiceIP(step: TraceStep): void {
    const recorded = (step.returns as { readonly oneOf: readonly TraceFrontend[] } | null)?.oneOf ?? [];
    const expected = recorded.filter((frontend) => frontend.ip !== null).map(comparable);
    const id = step.serviceID ?? NO_ID;
    const kept = this.#kept.get(formatServiceID(id));
    const [frontend] =
      kept === undefined ? [this.#cache.getServiceIP(id)] : frontendsOf(kept, this.#nodePort);
    const actual = frontend === undefined ? undefined : renderFrontend(frontend);
    const right =
      actual === undefined ? expected.length === 0 : expected.some((each) => text(each) === text(actual));
    if (!right) this.#mismatch('returns', expected, actual);
  }

  #compareEvents(
    step: TraceStep,
    events: readonly ServiceEvent[],
    before: ReadonlyMap<string, Service | undefined>,
  ): void {
    const [recorded] = step.events ?? [];
    const redundant = (step.redundant ?? []).length > 0;
    if (redundant) this.#tally.skipped('redundant events');
    const [ours] = events;
    const id = ours?.id ?? recorded?.id;
    if (id === undefined) return;
    const key = formatServiceID(id);
    const relaxedBefore = this.#relaxation(key);
    const news = this.#tellsNews(key, ours) ? ours : undefined;
    this.#foldBoth(key, recorded, ours);
    const relaxed = relaxedBefore ?? this.#relaxation(key);
    if (events.length > 1) this.#mismatch('several events', recorded, events);
    else if (!this.#sameEvent(redundant ? undefined : recorded, news)) {
      if (relaxed === undefined) this.#mismatch('events', recorded, ours && this.#render(ours));
      else this.#tally.skipped(`${relaxed}: folds compared`);
    }
    if (recorded?.oldService) this.#compareOldService(recorded.oldService, before.get(key));
    if (!this.#sameTold(this.#upstream.get(key), this.#ours.get(key))) {
      this.#mismatch('folded events', this.#upstream.get(key), this.#ours.get(key));
    }
  }

  /** Returns the reason if only the folds of a service are compared. */
  #relaxation(key: string): string | undefined {
    if (this.#unready.has(key)) return 'lost readiness';
    return this.#upstream.get(key)?.endpoints.ambiguous === undefined ? undefined : 'ambiguous backends';
  }

  /**
   * Returns true if the traces can express our event. They cannot if only the cluster of a backend changes.
   */
  #tellsNews(key: string, event: ServiceEvent | undefined): boolean {
    if (event === undefined || event.action === 'delete') return event !== undefined;
    const { service, endpoints } = this.#render(event);
    const told = this.#ours.get(key);
    return told === undefined || text([told.service, told.endpoints]) !== text([service, endpoints]);
  }

  /**
   * The old service of an upstream event is the replaced one, announced or not, which is our previous state.
   */
  #compareOldService(recorded: unknown, before: Service | undefined): void {
    const actual = before && this.#renderService(before);
    if (text(comparable(recorded)) !== text(actual)) this.#mismatch('old service', recorded, actual);
  }

  #foldBoth(key: string, recorded: TraceEvent | undefined, ours: ServiceEvent | undefined): void {
    if (recorded?.action === 'service-updated') this.#upstream.set(key, recorded);
    if (recorded?.action === 'service-deleted') this.#upstream.delete(key);
    if (ours?.action === 'update') this.#ours.set(key, this.#render(ours));
    if (ours?.action === 'delete') this.#ours.delete(key);
    const id = ours?.id ?? recorded?.id;
    const explained = id === undefined ? undefined : this.#cache.explain(id);
    if (explained?.announced === true && !explained.ready) this.#unready.add(key);
    else this.#unready.delete(key);
  }

  #render(event: ServiceEvent): TraceEvent {
    return {
      action: event.action === 'update' ? 'service-updated' : 'service-deleted',
      id: event.id,
      service: this.#renderService(event.service),
      oldService: null,
      endpoints: renderBackends(event.endpoints.backends),
    };
  }

  #renderService(service: Service): unknown {
    return renderService(service, this.#scenario.config, this.#nodePort);
  }

  #sameEvent(recorded: TraceEvent | undefined, ours: ServiceEvent | undefined): boolean {
    if (recorded === undefined || ours === undefined) return recorded === ours;
    const rendered = this.#render(ours);
    return recorded.action === rendered.action && this.#sameTold(recorded, rendered);
  }

  /** If readiness was lost, an unannounced service equals one without backends. */
  #sameTold(upstream: Told | undefined, ours: Told | undefined): boolean {
    if (upstream === undefined || ours === undefined) {
      const told = upstream ?? ours;
      return told === undefined || Object.keys(told.endpoints.backends).length === 0;
    }
    const sameService = text(comparable(upstream.service)) === text(ours.service);
    return sameService && sameEndpoints(upstream.endpoints, ours.endpoints);
  }

  /** Checks I1, I2 and I4 against the naive cache, and I1 and I3 as the listener sees them. */
  #checkInvariants(): void {
    const expected = this.#naive.view();
    const folded = this.#listener.view();
    if (text(expected) !== text(folded)) this.#mismatch('I1/I2/I4: fold and model', expected, folded);
    const late = new FoldingListener();
    this.#cache.subscribe(late)();
    if (text(late.view()) !== text(folded)) this.#mismatch('I1: fold and dump', late.view(), folded);
    for (const breach of this.#listener.breaches.splice(0)) this.#mismatch(breach, undefined, undefined);
  }

  #compareFinal(): void {
    const { final } = this.#scenario;
    const services = Object.fromEntries(
      [...this.#upstreamServices()].map(([key, service]) => [key, this.#renderService(service)]),
    );
    this.#tally.compared();
    if (text(comparable(final.services)) !== text(services)) {
      this.#mismatch('final services', final.services, services);
    }
    for (const [key, id] of this.#ids) this.#compareFinalOf(key, id);
  }

  #compareFinalOf(key: string, id: ServiceID): void {
    const { final } = this.#scenario;
    const explained = this.#cache.explain(id);
    const local: Record<string, TraceEndpoints> = {};
    const external: Record<string, TraceEndpoints> = {};
    for (const { cluster, slice } of explained?.origins ?? []) {
      const claims = explained?.backends.filter(
        (claim) => claim.cluster === cluster && claim.slice === slice && claim.backend.state === 'active',
      );
      const rendered = renderBackends(
        new Map(claims?.map((claim) => [claim.address, claim.backend])) as never,
      );
      if (cluster === '') local[slice] = rendered;
      else external[cluster] = rendered;
    }
    const expected = [final.endpoints[key] ?? {}, final.externalEndpoints[key] ?? {}];
    if (text(comparable(expected)) !== text([local, external])) {
      this.#mismatch('final endpoints', expected, [local, external]);
    }
    this.#compareCorrelated(key, id);
  }

  #compareCorrelated(key: string, id: ServiceID): void {
    if (this.#kept.has(key)) {
      this.#tally.skipped('update ignored upstream: readiness of the older service');
      return;
    }
    const expected = this.#scenario.final.correlated[key];
    const explained = this.#cache.explain(id);
    if (expected === undefined || explained?.service === undefined) {
      if (expected !== undefined || explained?.service !== undefined) {
        this.#mismatch('final correlated', expected, explained?.service);
      }
      return;
    }
    const endpoints = this.#cache.get(id)?.endpoints.backends;
    const actual = { ready: explained.ready, endpoints: renderBackends(endpoints ?? (new Map() as never)) };
    if (expected.ready !== actual.ready || !sameEndpoints(expected.endpoints, actual.endpoints)) {
      this.#mismatch('final correlated', expected, actual);
    }
  }
}

/**
 * Replays one recorded scenario of kind `servicecache` as FORMAT.md requires. Everything before `firstBroken`
 * is compared completely. Our invariants must hold at every step.
 */
export function replayServiceCache(scenario: unknown, tally: ReplayTally): void {
  tally.scenario();
  // The files are trusted: recorded once, in the documented format.
  new Replay(scenario as TraceScenario, tally).run();
}
