// A button that cancels a response which runs.
import { html } from "../vendor/preact-htm.js";
import { sendJson } from "./api.js";

/**
 * Only responses in the background can be cancelled; of others, the gateway says so. It keeps no state: rows of a list
 * change their places.
 * @param {{id: string, onFault: (fault: any) => void}} props
 */
export function Cancel({ id, onFault }) {
  const cancel = (event) => {
    event.stopPropagation();
    onFault(null);
    sendJson("POST", `/v1/responses/${encodeURIComponent(id)}/cancel`).catch(onFault);
  };
  return html`<button type="button" class="plain" aria-label=${`Cancel ${id}`} onClick=${cancel}>cancel</button>`;
}
