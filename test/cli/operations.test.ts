import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { operatorMetrics } from '../../src/agent/operator/operator-metrics.ts';
import { kvstoreMeshMetrics } from '../../src/agent/run-kvstoremesh.ts';
import { type Metrics, problemsMetric } from '../../src/api/metrics/metric.ts';
import { Scrape } from '../../src/api/metrics/scrape.ts';
import { addAgentOptions } from '../../src/cli/configuration.ts';
import { EXIT } from '../../src/cli/io.ts';
import { createLog } from '../../src/process/log.ts';
import { testApp } from '../api/support/test-app.ts';
import { example } from './support/run.ts';

function documentText(name: string): string {
  return readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), 'utf8');
}

const DOCUMENT = documentText('OPERATIONS');

const scraped = await (await testApp().app.request('/metrics')).text();
const NO_OPERATOR = {
  clusterName: '',
  duties: () => ({ all: [], published: [] }),
  isLeader: () => false,
  rejections: () => ({ byReason: {} }),
};
/** The metrics of an operator and a kvstoremesh that `runProcess` adds. */
const OF_PROCESS: Metrics = { dpcache_problems: problemsMetric(() => []) };
const OF_OPERATOR = [OF_PROCESS, ...operatorMetrics(NO_OPERATOR, new Scrape())];
const OF_KVSTOREMESH = [OF_PROCESS, ...kvstoreMeshMetrics(() => [], new Scrape())];
const OTHER_METRICS: readonly Metrics[] = [...OF_OPERATOR, ...OF_KVSTOREMESH];
/** The metrics of the agent, with their types. */
const METRICS = new Map(
  [...scraped.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => [name, type] as const),
);

/** Folder of scripts/ensure-tools.sh, used if promtool is not on the PATH. */
const KEPT = fileURLToPath(new URL('../../node_modules/.cache/promtool/promtool', import.meta.url));

/** Returns the complaints of promtool; '' if there are none. */
function promtool(args: readonly string[], input = ''): string {
  const command = existsSync(KEPT) ? KEPT : 'promtool';
  const { status, stdout, stderr, error } = spawnSync(command, args, { input, encoding: 'utf8' });
  return status === 0 ? stderr : `${error?.message ?? ''}${stdout}${stderr}`;
}

/** Names of metrics in an expression of PromQL. */
function used(expression: string): readonly string[] {
  return expression.match(/\b(?:dpcache|nodejs|process)_\w+/g) ?? [];
}

/** Returns true if a scrape contains the metric, or a series of the histogram. */
function isScraped(name: string): boolean {
  if (OTHER_METRICS.some((metrics) => name in metrics)) return true;
  return METRICS.has(name) || METRICS.get(name.replace(/_(bucket|sum|count)$/, '')) === 'histogram';
}

describe('/metrics', () => {
  it('is accepted by Prometheus, with conventional names', () => {
    expect(promtool(['check', 'metrics'], scraped)).toBe('');
    expect(promtool(['check', 'metrics'], '# TYPE x gauge\nx_total 1\n')).not.toBe('');
  });
});

describe('examples/operations', () => {
  it('has rules that fire exactly under their conditions', () => {
    expect(promtool(['check', 'rules', example('operations/alerts.yaml')])).toBe('');
    const tests = example('operations/alerts.test.yaml');
    expect(promtool(['test', 'rules', tests])).toBe('');
    const { groups } = parse(readFileSync(example('operations/alerts.yaml'), 'utf8'));
    const text = readFileSync(tests, 'utf8');
    for (const { alert } of groups[0].rules) expect(text).toContain(`alertname: ${alert}\n`);
  });

  it('alerts on existing metrics only', () => {
    const { groups } = parse(readFileSync(example('operations/alerts.yaml'), 'utf8')) as {
      groups: readonly { rules: readonly { alert: string; expr: string }[] }[];
    };
    const rules = groups.flatMap((group) => group.rules);
    expect(rules.length).toBeGreaterThan(5);
    for (const { alert, expr } of rules) {
      expect([alert, used(expr).length > 0]).toEqual([alert, true]);
      expect([alert, used(expr).filter((name) => !isScraped(name))]).toEqual([alert, []]);
    }
  });

  it('shows existing metrics only', () => {
    const { panels, templating } = JSON.parse(readFileSync(example('operations/dashboard.json'), 'utf8')) as {
      panels: readonly { title: string; targets: readonly { expr: string }[] }[];
      templating: { list: readonly { query: string }[] };
    };
    for (const { title, targets } of panels) {
      const names = targets.flatMap(({ expr }) => used(expr));
      expect([title, names.length > 0]).toEqual([title, true]);
      expect([title, names.filter((name) => !isScraped(name))]).toEqual([title, []]);
    }
    expect(templating.list.flatMap(({ query }) => used(query)).filter((name) => !isScraped(name))).toEqual(
      [],
    );
  });
});

describe('docs/METRICS.md', () => {
  const [ofAgent = '', ofOperator = '', ofKvstoreMesh = ''] = documentText('METRICS').split(
    /^## (?:Operator|kvstoremesh)$/m,
  );

  /** Name, type and labels of each metric in the tables of a section. */
  function explained(section: string): readonly string[] {
    const cells = Array.from(section.matchAll(/^\| (`dpcache_.+?) \|/gm), ([, cell = '']) => cell);
    const metrics = cells.flatMap((cell) => [...cell.matchAll(/`(dpcache_\w+)(?:\{([\w,]+)\})?`( \(h\))?/g)]);
    return metrics
      .map(([, name = '', labels = '', mark]) => {
        const type = name.endsWith('_total') ? 'counter' : 'gauge';
        return `${name} ${mark === undefined ? type : 'histogram'} ${labels}`;
      })
      .sort();
  }

  it('explains every metric of the agent with its type, and no other', () => {
    const withoutLabels = explained(ofAgent).map((line) => line.replace(/ [\w,]*$/, ''));
    const own = [...METRICS].filter(([name]) => name.startsWith('dpcache_'));
    expect(withoutLabels).toEqual(own.map(([name, type]) => `${name} ${type}`).sort());
  });

  it.each<[string, string, readonly Metrics[]]>([
    ['the operator', ofOperator, OF_OPERATOR],
    ['kvstoremesh', ofKvstoreMesh, OF_KVSTOREMESH],
  ])(
    'explains every metric of %s with its type and its labels, and no other',
    (_process, section, tables) => {
      const lines = tables
        .flatMap((metrics) => Object.entries(metrics))
        .map(([name, { type, labels = [] }]) => `${name} ${type} ${labels.join(',')}`);
      expect(explained(section)).toEqual(lines.sort());
    },
  );
});

describe('docs/OPERATIONS.md', () => {
  it('names every group of settings, and every exit status', () => {
    const groups = new Set(
      addAgentOptions(new Command()).options.map(({ helpGroupHeading = '' }) => helpGroupHeading),
    );
    const rows = Array.from(DOCUMENT.matchAll(/^\| (\w[\w ]+) \| .*\]\(/gm), ([, group]) => group);
    expect(groups.size).toBe(7);
    expect([...groups].filter((group) => !rows.includes(group.replace(/( \(stderr\))?:$/, '')))).toEqual([]);
    for (const status of Object.values(EXIT)) expect(DOCUMENT).toMatch(new RegExp(`^\\| ${status} \\|`, 'm'));
  });

  it('names the fields of a log line', () => {
    const lines: string[] = [];
    createLog('info', 'json', { write: (line) => lines.push(line) }).error({ err: new Error('x') }, 'y');
    for (const field of Object.keys(JSON.parse(lines[0] ?? ''))) expect(DOCUMENT).toContain(`\`${field}\``);
  });
});
