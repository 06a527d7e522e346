// The AI SDK with tools that the gateway runs: two turns each, stored and not stored.
import { createOpenAI } from '@ai-sdk/openai';
import { streamText } from 'ai';

import { all, baseURL, tell, turn } from './report.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL, apiKey: 'none' });
const tools = {
  web_search: openai.tools.webSearch({}),
  image_generation: openai.tools.imageGeneration({ partialImages: 1 }),
};

async function talk(model, store) {
  const options = { maxRetries: 0, tools, providerOptions: { openai: { store } } };
  const ask = async (messages) => {
    const result = streamText({ ...options, model: openai.responses(model), messages });
    const parts = await all(result.stream);
    const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
    const sources = (await result.sources).map((source) => source.url);
    const kinds = [...new Set(parts.map((part) => part.type))];
    const messagesOut = (await result.response).messages;
    return { text: await result.text, errors, sources, kinds, messages: messagesOut };
  };
  const first = { role: 'user', content: 'How large is it? Draw it.' };
  const one = await ask([first]);
  const two = await ask([first, ...one.messages, { role: 'user', content: 'Again?' }]);
  const { messages: _, ...shown } = one;
  return { ...shown, again: { text: two.text, errors: two.errors } };
}

await turn('stored', (model) => talk(model, true));
await turn('not-stored', (model) => talk(model, false));
tell();
