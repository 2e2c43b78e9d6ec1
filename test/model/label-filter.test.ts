import { describe, expect, it } from 'vitest';
import { LabelFilter, type LabelFilterOptions, LabelRuleError } from '../../src/model/label-filter.ts';

function kept(keys: readonly string[], options?: LabelFilterOptions, source = 'k8s'): readonly string[] {
  const filter = new LabelFilter(options);
  return keys.filter((key) => filter.keeps({ source, key, value: '' }));
}

describe('a label filter', () => {
  it('keeps labels that no rule ignores, and those with a more specific include rule (K 28, 29)', () => {
    const keys = [
      'app',
      'io.kubernetes.pod.namespace',
      'io.kubernetes.pod.name',
      'app.kubernetes.io/name',
      'kubernetes.io/arch',
      'io.cilium.k8s.namespace.labels.team',
      'io.cilium.k8s.policy.cluster',
      'statefulset.kubernetes.io/pod-name',
      'failure-domain.beta.kubernetes.io/zone',
      'topology.kubernetes.io/zone', // Kubernetes 1.35 copies it from the node to its pods
      'pod-template-hash',
      'annotation.x',
      'etcd_node',
      'k8s.io/x',
    ];
    expect(kept(keys)).toEqual([
      'app',
      'io.kubernetes.pod.namespace',
      'app.kubernetes.io/name',
      'io.cilium.k8s.namespace.labels.team',
      'io.cilium.k8s.policy.cluster',
    ]);
  });

  it('matches at the start of a key only, and a dot only with a dot', () => {
    expect(kept(['my-pod-template-hash', 'kubernetesXio/arch', 'ioXkubernetes'])).toEqual([
      'my-pod-template-hash',
      'kubernetesXio/arch',
      'ioXkubernetes',
    ]);
  });

  it('keeps only included labels if an option includes any', () => {
    const builtIn = [
      'io.kubernetes.pod.namespace',
      'io.cilium.k8s.policy.cluster',
      'io.cilium.k8s.policy.serviceaccount', // since 1.18
    ];
    expect(kept(['app', 'tier', ...builtIn], { rules: ['app'] })).toEqual(['app', ...builtIn]);
    expect(kept(['app', 'tier'], { rules: ['!tier'] })).toEqual(['app']);
  });

  it('uses the shortest ignoring match and the longest including match', () => {
    const rules = ['!a', '!abcd', 'ab', 'abc'];
    expect(kept(['abcd', 'a', 'ab'], { file: [], rules })).toEqual(['abcd', 'ab']);
  });

  it('checks the source if a rule names one', () => {
    const options = { file: [{ prefix: 'app', source: 'container' }] };
    expect(kept(['app'], options)).toEqual([]);
    expect(kept(['app'], options, 'container')).toEqual(['app']);
    expect(kept(['app'], { rules: ['!k8s:app'] })).toEqual([]);
    expect(kept(['app'], { rules: ['!container:app'] })).toEqual(['app']);
  });

  it('reads the "!" after the source, as Cilium does (pkg/labelsfilter/filter.go, `parseLabelPrefix`)', () => {
    expect(kept(['app', 'tier'], { rules: ['k8s:!app'] })).toEqual(['tier']);
    expect(kept(['app', 'tier'], { rules: ['container:!app'] })).toEqual(['app', 'tier']);
    expect(kept(['app'], { rules: [':!app'] })).toEqual([]);
    // The filter of a user with many pods: it includes some labels only, and none of those of the namespace.
    const rules = [
      'reserved:.*',
      'k8s:!io.cilium.k8s.namespace.labels.*',
      'k8s:io.cilium.k8s.policy',
      'k8s:app-id',
    ];
    expect(kept(['app-id', 'tier', 'io.cilium.k8s.namespace.labels.team'], { rules })).toEqual(['app-id']);
  });

  it('has no built-in rules with a file', () => {
    expect(kept(['pod-template-hash', 'app'], { file: [{ prefix: 'app', invert: true }] })).toEqual([
      'pod-template-hash',
    ]);
  });

  it.each(['', '!', 'k8s:', 'k8s:!', 'k8s:(', '![', 'k8s:!('])('refuses the rule %j', (rule) => {
    expect(() => new LabelFilter({ rules: [rule] })).toThrow(LabelRuleError);
  });
});
