import type { BackendDocument, ServiceDocument } from '../api/documents.ts';
import type { ExplainedServiceDocument } from '../api/schemas.ts';
import {
  type Column,
  find,
  hinted,
  type ListFilters,
  listAll,
  listed,
  nothing,
  pathOf,
  portsCell,
  type Question,
  restoredText,
  table,
  type View,
} from './answer.ts';
import { backendsText } from './change-text.ts';
import { printable } from './terminal.ts';

const NO_SERVICE =
  'No service is known. Services are read from --manifests; what remote clusters offer counts for those that are global.';

function serviceName({ namespace, name }: ServiceDocument): string {
  return `${namespace}/${name}`;
}

const SERVICE_COLUMNS: readonly Column<ServiceDocument>[] = [
  { title: 'SERVICE', cell: serviceName },
  { title: 'TYPE', cell: ({ type }) => type, wide: true },
  { title: 'CLUSTER IP', cell: ({ clusterIPs }) => clusterIPs.join(' ') || '-' },
  { title: 'PORTS', cell: ({ ports }) => portsCell(ports) },
  {
    title: 'MESH',
    cell: ({ global, shared, restored }) =>
      [global ? 'global' : '', shared ? 'shared' : '', restoredText(restored)].filter(Boolean).join(' ') ||
      '-',
  },
  { title: 'AFFINITY', cell: ({ affinity }) => affinity || '-', wide: true },
  { title: 'BACKENDS', cell: ({ backends }) => backendsText(backends) },
  {
    title: 'ADDRESSES',
    cell: ({ backends }) => backends.map(({ address }) => address).join(' ') || '-',
    wide: true,
  },
];

/** Services for people. */
export function serviceLines(services: readonly ServiceDocument[], view: View): readonly string[] {
  return hinted(listed(SERVICE_COLUMNS, services, view), NO_SERVICE);
}

/** Announced services with their effective backends, by namespace and name. */
export function listServices(filters: ListFilters): Question {
  return async (ask, view) => {
    const services = await listAll<ServiceDocument>(ask, '/v1/services', filters);
    const lines = serviceLines(services, view);
    return { json: services, lines, found: true, names: services.map(serviceName) };
  };
}

function servicePath(name: string): string {
  return `/v1/services/${pathOf(name)}`;
}

const BACKEND_COLUMNS: readonly Column<BackendDocument>[] = [
  { title: 'BACKEND', cell: ({ address }) => address },
  { title: 'CLUSTER', cell: ({ cluster }) => cluster ?? 'local' },
  { title: 'NODE', cell: ({ nodeName }) => nodeName ?? '-' },
  { title: 'ZONE', cell: ({ zone }) => zone ?? '-', wide: true },
  { title: 'PORTS', cell: ({ ports }) => portsCell(ports) },
  { title: 'STATE', cell: ({ state }) => state },
];

/** A service with each of its backends. */
export function getService(name: string): Question {
  return async (ask, view) => {
    const service = await find<ExplainedServiceDocument>(ask, servicePath(name));
    if (service === undefined) return nothing(name);
    const { explain: _, ...document } = service;
    return {
      json: document,
      lines: [
        ...listed(SERVICE_COLUMNS, [service], view),
        '',
        ...listed(BACKEND_COLUMNS, service.backends, view),
      ],
      found: true,
      names: [serviceName(service)],
    };
  };
}

const VERDICTS: Readonly<Record<ExplainedServiceDocument['explain']['backends'][number]['verdict'], string>> =
  {
    effective: 'effective',
    overruled: 'overruled by a stronger claim on the address',
    'not-global': 'out: the service includes no other clusters',
    'not-ready': 'out: not ready',
    affinity: 'out: the service prefers backends of others',
  };

/** Who offers which backend to a service, and what became of each. */
export function explainService(name: string): Question {
  return async (ask, view) => {
    const service = await find<ExplainedServiceDocument>(ask, servicePath(name));
    if (service === undefined) return nothing(name);
    const { explain } = service;
    const rows = explain.backends.map((backend) => [
      backend.address,
      backend.cluster ?? 'local',
      backend.slice || '-',
      VERDICTS[backend.verdict],
    ]);
    return {
      json: explain,
      lines: [
        `${printable(name)}: ${backendsText(service.backends)} of ${explain.backends.length} that are offered are effective.`,
        ...table([['BACKEND', 'CLUSTER', 'SLICE', 'VERDICT'], ...rows], view),
      ],
      found: true,
    };
  };
}
