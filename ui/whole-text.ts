/** Elements whose text is cut if it does not fit. */
const CUT = '[role=cell], [role=option] > *, .chip';

/** The tooltips set here, which are replaced; others have more than the text. */
const shown = new WeakMap<HTMLElement, string>();

function showWhole({ target }: PointerEvent): void {
  const element = target instanceof Element ? target.closest<HTMLElement>(CUT) : null;
  if (element === null || element.title !== (shown.get(element) ?? '')) return;
  const text = element.scrollWidth > element.clientWidth ? element.textContent : '';
  element.title = text;
  shown.set(element, text);
}

/** Shows the whole text of each element that cuts it as its tooltip. Call it once. */
export function showWholeTexts(): void {
  document.addEventListener('pointerover', showWhole);
}
