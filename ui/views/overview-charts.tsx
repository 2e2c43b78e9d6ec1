import type { VNode } from 'preact';
import { useRates } from '../agent/rates.ts';
import { Chart } from '../parts/chart.tsx';
import { Panel } from '../parts/panel.tsx';

/** Shows the changes per second of the last hour. */
export function Charts(): VNode {
  const { times, prefixes, services, nodes } = useRates();
  return (
    <Panel title="Changes per second, last hour">
      <div class="charts">
        <Chart title="Prefixes" times={times} values={prefixes} />
        <Chart title="Services" times={times} values={services} />
        <Chart title="Nodes" times={times} values={nodes} />
      </div>
    </Panel>
  );
}
