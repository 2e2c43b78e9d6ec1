import type { Rejection } from '../../base/rejection.ts';
import type { ResourceSource } from '../../k8s/resource.ts';
import type { ObjectWriter } from '../../k8s/rest/object-writer.ts';
import { ObservedKind } from '../collect/observed-kind.ts';
import type { Duty } from '../duty.ts';
import type { DutyContext } from '../duty-report.ts';
import { fencedWriter, type WriteContext } from '../elect/fenced-writer.ts';
import { ExportedSlices, type ExportedSlicesOptions, MCS_CONTROLLER } from './exported-slices.ts';
import { MESH_CONTROLLER, RemoteSlices, type RemoteSlicesOptions } from './remote-slices.ts';
import { ENDPOINT_SLICES, FIELD_MANAGER, MANAGED_BY } from './slice-content.ts';
import { knownSlice, type SliceSource, SliceWriter, type SliceWriterOptions } from './slice-writer.ts';

/** `writer` is an {@link objectWriter}, shared by all duties that write objects of remote clusters. */
export interface SliceDutyContext extends DutyContext, Pick<SliceWriterOptions, 'writer' | 'batchMs'> {
  readonly kubernetes: ResourceSource;
  readonly onReject: (rejection: Rejection) => void;
}

const WRITES_PER_SECOND = 20;

/** Returns a writer of 20 objects a second without bursts, with the field manager of the operator. */
export function objectWriter(context: WriteContext): ObjectWriter {
  return fencedWriter(context, { perSecond: WRITES_PER_SECOND, burst: 1, fieldManager: FIELD_MANAGER });
}

function sliceWriter(source: SliceSource, managedBy: string, context: SliceDutyContext): SliceWriter {
  const kind = { ...ENDPOINT_SLICES, labelSelector: `${MANAGED_BY}=${managedBy}` };
  const slices = new ObservedKind(context.kubernetes, kind, knownSlice);
  return new SliceWriter({ ...context, source, slices });
}

/** Returns the duty that makes EndpointSlices of the backends of remote clusters (`--endpoint-slice-sync`). */
export function endpointSliceSync(
  context: SliceDutyContext & Pick<RemoteSlicesOptions, 'clusters' | 'endpointsPerSlice'>,
): Duty {
  const remoteSlices = new RemoteSlices({ ...context, source: context.kubernetes });
  return sliceWriter(remoteSlices, MESH_CONTROLLER, context);
}

/** Returns the duty that copies the EndpointSlices of exported Services to their derived Services (`--mcs-api`). */
export function exportedSliceCopies(
  context: SliceDutyContext & Pick<ExportedSlicesOptions, 'clusterName' | 'objects'>,
): Duty {
  const exportedSlices = new ExportedSlices({ ...context, source: context.kubernetes });
  return sliceWriter(exportedSlices, MCS_CONTROLLER, context);
}
