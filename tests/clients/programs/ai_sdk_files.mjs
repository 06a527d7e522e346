// The AI SDK with files that the gateway searches: two turns each, stored and not stored.
import { createOpenAI } from '@ai-sdk/openai';
import { streamText } from 'ai';

import { all, baseURL, tell, turn } from './report.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL, apiKey: 'none' });
const tools = {
  file_search: openai.tools.fileSearch({ vectorStoreIds: ['vs_1'], maxNumResults: 3 }),
};

async function talk(model, store) {
  const providerOptions = { openai: { store, include: ['file_search_call.results'] } };
  const options = { maxRetries: 0, tools, providerOptions };
  const ask = async (messages) => {
    const result = streamText({ ...options, model: openai.responses(model), messages });
    const parts = await all(result.stream);
    const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
    const sources = (await result.sources).map((one) => [one.sourceType, one.filename ?? one.title]);
    const kinds = [...new Set(parts.map((part) => part.type))];
    const outputs = parts.filter((part) => part.type === 'tool-result').map((part) => part.output);
    const messagesOut = (await result.response).messages;
    return { text: await result.text, errors, sources, kinds, outputs, messages: messagesOut };
  };
  const first = { role: 'user', content: 'How large is it?' };
  const one = await ask([first]);
  const two = await ask([first, ...one.messages, { role: 'user', content: 'Again?' }]);
  const { messages: _, ...shown } = one;
  return { ...shown, again: { text: two.text, errors: two.errors } };
}

await turn('stored', (model) => talk(model, true));
await turn('not-stored', (model) => talk(model, false));
tell();
