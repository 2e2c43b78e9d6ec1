import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { useWidth } from '../agent/width.ts';
import { countText } from '../format.ts';

/** Height of a chart in pixels. */
const HEIGHT = 130;

const HOUR_S = 3_600;

/** Minimum length of the shown time, shortly after the start of an agent. */
const MIN_SHOWN_S = 300;

/** Charts with the same key show the cursor at the same time of their axes. */
const SYNC = 'rates';

/** Returns the computed value of a colour, because a canvas does not support `light-dark()`. */
function colour(name: string): string {
  const probe = document.createElement('i');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function optionsOf(width: number): uPlot.Options {
  const font = '11px Inter, system-ui, sans-serif';
  const axis: uPlot.Axis = {
    font,
    stroke: () => colour('--faint'),
    grid: { stroke: () => colour('--line'), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: SYNC }, y: false, points: { size: 6 } },
    padding: [8, 18, 0, 0],
    scales: {
      x: { time: true, range: rangeOf },
      y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] },
    },
    axes: [
      { ...axis, size: 24, space: 50, values: (_, ticks) => ticks.map((tick) => timeOf(tick)) },
      { ...axis, size: 44, space: 32, values: (_, ticks) => ticks.map((tick) => countText(tick)) },
    ],
    series: [
      {},
      {
        stroke: () => colour('--accent'),
        fill: () => colour('--accent-ground'),
        width: 1.5,
        points: { show: false },
      },
    ],
  };
}

/** Returns the last hour, or the time since the start of the agent, but at least {@link MIN_SHOWN_S}. */
function rangeOf({ data: [times, values] }: uPlot, _: number, max: number): [number, number] {
  const begin = times[values?.findIndex((value) => value != null) ?? 0] ?? max;
  return [Math.max(max - HOUR_S, Math.min(begin, max - MIN_SHOWN_S)), max];
}

function timeOf(seconds: number): string {
  const date = new Date(seconds * 1_000);
  return `${String(date.getHours()).padStart(2, '0')}:${String(date.getMinutes()).padStart(2, '0')}`;
}

/** A chart of a rate over time with axes. `times` are seconds since 1970, ascending. */
export function Chart({
  title,
  times,
  values,
}: {
  title: string;
  times: readonly number[];
  values: readonly (number | null)[];
}): VNode {
  const { ref, width } = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot>();
  useEffect(() => {
    if (width === 0 || ref.current === null) return;
    if (plot.current === undefined)
      plot.current = new uPlot(optionsOf(width), [[...times], [...values]], ref.current);
    else plot.current.setSize({ width, height: HEIGHT });
  }, [width]);
  useEffect(() => plot.current?.setData([[...times], [...values]]), [times, values]);
  useEffect(() => {
    const redraw = (): void => plot.current?.redraw(false);
    const colours = matchMedia('(prefers-color-scheme: dark)');
    const theme = new MutationObserver(redraw);
    colours.addEventListener('change', redraw);
    theme.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      colours.removeEventListener('change', redraw);
      theme.disconnect();
      plot.current?.destroy();
    };
  }, []);
  const last = values.at(-1) ?? 0;
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  return (
    <figure class="chart">
      <header>
        <strong>{title}</strong>
        <span class="faint">
          {rateText(last)} now, at most {rateText(most)}
        </span>
      </header>
      <div
        class="plot"
        ref={ref}
        role="img"
        aria-label={`${title} per second over the last hour: at most ${rateText(most)}`}
      />
    </figure>
  );
}

function rateText(rate: number): string {
  return `${rate === 0 || rate >= 10 ? countText(Math.round(rate)) : rate.toFixed(1)}/s`;
}
