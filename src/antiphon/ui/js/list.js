// A long table of which only the visible rows exist in the page.
import { html, useLayoutEffect, useRef, useState } from "../vendor/preact-htm.js";

const ROW = 30;
const BEYOND = 8;

/**
 * The selected row is scrolled to when it is selected; `mark` names it where rows change their places.
 * @param {{label: string, columns: string[], count: number, selected: number, mark?: string | null,
 *   row: (index: number) => any, onEnd?: () => void, onPick: (index: number) => void}} props
 */
export function List({ label, columns, count, selected, mark = undefined, row, onEnd, onPick }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const measure = () => {
    const { scrollTop: top, clientHeight: height } = box.current || {};
    if (box.current) setView((old) => (old.top === top && old.height === height ? old : { top, height }));
  };
  useLayoutEffect(() => {
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const top = selected * ROW;
    const element = box.current;
    if (selected < 0) return;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + 2 * ROW - element.clientHeight;
    }
    measure(); // the event of scrolling comes later, and not if the list is back where it was
  }, [mark === undefined ? selected : mark]);
  const first = Math.max(0, Math.floor(view.top / ROW) - BEYOND);
  const last = Math.min(count, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  useLayoutEffect(() => {
    if (last >= count && onEnd) onEnd();
  }, [last, count]);
  const indexes = Array.from({ length: Math.max(0, last - first) }, (_, offset) => first + offset);
  return html`<div class="list" ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${measure}>
    <table aria-rowcount=${count + 1} aria-label=${label}>
      <thead><tr aria-rowindex="1">${columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="space" aria-hidden="true" style=${{ height: `${first * ROW}px` }}><td colspan=${columns.length}></td></tr>`}
        ${indexes.map((index) => html`<tr key=${index} aria-rowindex=${index + 2} class=${index === selected ? "selected" : ""}
            aria-current=${index === selected ? "true" : undefined} onClick=${() => onPick(index)}>
          ${row(index).map((cell) => html`<td>${cell}</td>`)}
        </tr>`)}
        ${last < count && html`<tr class="space" aria-hidden="true" style=${{ height: `${(count - last) * ROW}px` }}><td colspan=${columns.length}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}
