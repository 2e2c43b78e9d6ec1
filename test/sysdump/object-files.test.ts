import { expect, it } from 'vitest';
import { isEndpointFile } from '../../src/sysdump/object-files.ts';

it.each([
  ['cilium-endpoint-slices-20261127.yaml', 'slices'],
  ['kubernetes/ciliumendpointslices.yaml', 'slices'],
  ['ces.json', 'slices'],
  ['cilium-endpoints-20261127.yaml', 'endpoints'],
  ['cep.yaml', 'endpoints'],
  ['kubernetes-endpoints.yaml', undefined],
])('the file %s has %s (regression: names with dashes had endpoints)', (name, kind) => {
  expect(isEndpointFile(name)).toBe(kind);
});
