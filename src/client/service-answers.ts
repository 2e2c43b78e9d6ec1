import type { BackendDocument, ExplainedServiceDocument, ServiceDocument } from '../api/documents.ts';
import { namePath } from '../api/name-path.ts';
import type { ClusterDocument } from '../api/status-document.ts';
import { DEFAULT_WEIGHT } from '../model/backend-weight.ts';
import { printable } from '../process/terminal.ts';
import {
  type Answer,
  type Column,
  documentTable,
  linesOrHint,
  type NamedRequest,
  namedAnswer,
  objectLines,
  portsCell,
  type Question,
  restoredText,
  table,
  type View,
} from './answer.ts';
import { backendsText } from './change-text.ts';
import { pastLines } from './history-answers.ts';
import { type ListFilters, type PrintedList, printedList, withQuery } from './list.ts';

const NO_SERVICE =
  'No services. Services are read from --manifests and Kubernetes; remote clusters add backends to global services.';

function serviceName({ namespace, name }: ServiceDocument): string {
  return `${namespace}/${name}`;
}

function nodesText({ nodeSelector, nodeLabel }: ServiceDocument): string {
  return nodeSelector ?? (nodeLabel === undefined ? 'all' : `service.cilium.io/node=${nodeLabel}`);
}

function clientLines({ sourceRanges, sourceRangesPolicy }: ServiceDocument): readonly string[] {
  if (sourceRanges === undefined) return [];
  const isDeny = sourceRangesPolicy === 'deny';
  if (sourceRanges.length === 0) return [`Its load balancer admits ${isDeny ? 'all clients' : 'no client'}.`];
  return [`Its load balancer admits only clients ${isDeny ? 'outside of' : 'in'} ${sourceRanges.join(' ')}.`];
}

const SERVICE_COLUMNS: readonly Column<ServiceDocument>[] = [
  { title: 'SERVICE', cell: serviceName },
  { title: 'TYPE', cell: ({ type }) => type },
  { title: 'CLUSTER IP', cell: ({ clusterIPs }) => clusterIPs.join(' ') || '-' },
  { title: 'PORTS', cell: ({ ports, nodePorts }) => portsCell(ports, nodePorts) },
  { title: 'BACKENDS', cell: ({ backends }) => backendsText(backends) },
  {
    title: 'MESH',
    cell: ({ global, shared, restored }) =>
      [global ? 'global' : '', shared ? 'shared' : '', restoredText(restored)].filter(Boolean).join(' ') ||
      '-',
  },
  {
    title: 'EXTERNAL IP',
    cell: ({ externalIPs = [], loadBalancerIPs = [] }) =>
      [...new Set([...loadBalancerIPs, ...externalIPs])].join(' ') || '-',
  },
  { title: 'AFFINITY', cell: ({ affinity }) => affinity || '-', wide: true },
  { title: 'NODES', cell: nodesText, wide: true },
  {
    title: 'ADDRESSES',
    cell: ({ backends }) => backends.map(({ address }) => address).join(' ') || '-',
    wide: true,
  },
];

export function serviceLines(services: readonly ServiceDocument[], view: View): readonly string[] {
  return linesOrHint(documentTable(SERVICE_COLUMNS, services, view), NO_SERVICE);
}

/** Returns the listing of announced services with their effective backends, by namespace and name. */
export function listServices(filters: ListFilters): PrintedList {
  return printedList<ServiceDocument>({
    path: '/v1/services',
    filters,
    columns: SERVICE_COLUMNS,
    nameOf: serviceName,
    hint: NO_SERVICE,
  });
}

function serviceRequest(name: string, at: string | undefined): NamedRequest {
  return { path: withQuery(`/v1/services/${namePath(name)}`, { at }), name, at };
}

const BACKEND_COLUMNS: readonly Column<BackendDocument>[] = [
  { title: 'BACKEND', cell: ({ address }) => address },
  { title: 'CLUSTER', cell: ({ cluster }) => cluster ?? 'local' },
  { title: 'NODE', cell: ({ nodeName }) => nodeName ?? '-' },
  { title: 'ZONE', cell: ({ zone }) => zone ?? '-', wide: true },
  { title: 'PORTS', cell: ({ ports }) => portsCell(ports) },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'WEIGHT', cell: ({ weight = DEFAULT_WEIGHT }) => String(weight), wide: true },
];

/** Returns true if a cluster may have backends of a service. */
function mayOffer({ global }: ServiceDocument, { local }: ClusterDocument): boolean {
  return global && !local;
}

export function getService(name: string, at?: string): Question {
  return (ask, view) => {
    const show = (service: ExplainedServiceDocument): Answer => {
      const { explain: _, ...document } = service;
      return {
        json: document,
        lines: [
          ...objectLines(SERVICE_COLUMNS, [service], view),
          '',
          ...documentTable(BACKEND_COLUMNS, service.backends, view),
          ...pastLines(service.past),
        ],
        succeeded: true,
        names: [serviceName(service)],
      };
    };
    return namedAnswer(ask, serviceRequest(name, at), show, mayOffer);
  };
}

const VERDICTS: Readonly<Record<ExplainedServiceDocument['explain']['backends'][number]['verdict'], string>> =
  {
    effective: 'effective',
    merged: 'its ports are merged with those of another slice',
    overruled: 'overruled by a stronger claim on the address',
    'not-global': 'unused: the service does not include other clusters',
    'not-ready': 'unused: not ready',
    affinity: 'unused: the affinity prefers other backends',
    maintenance: 'unused: its weight is 0',
  };

/** Returns the question for all offered backends of a service, each with its verdict. */
export function explainService(name: string, at?: string): Question {
  return (ask, view) => {
    const show = (service: ExplainedServiceDocument): Answer => {
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
          `${printable(name)}: ${explain.backends.length} offered, effective: ${backendsText(service.backends)}.`,
          ...(nodesText(service) === 'all'
            ? []
            : [`Only nodes with ${printable(nodesText(service))} have its frontends.`]),
          ...clientLines(service),
          ...(rows.length === 0 ? [] : table([['BACKEND', 'CLUSTER', 'SLICE', 'VERDICT'], ...rows], view)),
          ...pastLines(service.past),
        ],
        succeeded: true,
      };
    };
    return namedAnswer(ask, serviceRequest(name, at), show, mayOffer);
  };
}
