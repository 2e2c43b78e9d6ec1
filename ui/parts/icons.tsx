import type { VNode } from 'preact';

const PATHS = {
  search: 'M7 12.5A5.5 5.5 0 1 0 7 1.5a5.5 5.5 0 0 0 0 11ZM11 11l3.5 3.5',
  system: 'M1.5 3.5h13v8h-13zM5.5 14.5h5M8 11.5v3',
  light:
    'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  dark: 'M13.5 9.5A6 6 0 1 1 6.5 2.5a4.8 4.8 0 0 0 7 7Z',
  normal: 'M2 3.5h12M2 8h12M2 12.5h12',
  compact: 'M2 3h12M2 6.3h12M2 9.6h12M2 13h12',
  clock: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM8 4.5V8l2.5 2',
  brand: 'M3 3h4v4H3zM9 9h4v4H9zM7 5h4v4M9 11H5V7',
} as const;

/** Name of an icon. */
export type IconName = keyof typeof PATHS;

/**
 * An icon of 16 pixels in the colour of the text. It is decorative: the text beside it, or the label of its button, has
 * the meaning.
 */
export function Icon({ name }: { name: IconName }): VNode {
  return (
    <svg
      viewBox="0 0 16 16"
      aria-hidden="true"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-linecap="round"
      stroke-linejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
