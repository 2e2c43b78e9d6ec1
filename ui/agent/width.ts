import { useEffect, useRef, useState } from 'preact/hooks';

/** Returns a reference for an element, and the width of the element in pixels; 0 before it is known. */
export function useWidth<E extends HTMLElement>(): {
  readonly ref: { current: E | null };
  readonly width: number;
} {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { ref, width };
}
