// The AI SDK with code and shell commands that the gateway runs: two turns each.
import { createOpenAI } from '@ai-sdk/openai';
import { streamText } from 'ai';

import { all, baseURL, tell, turn } from './report.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL, apiKey: 'none' });
const tools = {
  code_interpreter: openai.tools.codeInterpreter({}),
  shell: openai.tools.shell({ environment: { type: 'containerAuto' } }),
};

async function talk(model, store) {
  const options = { maxRetries: 0, tools, providerOptions: { openai: { store } } };
  const ask = async (messages) => {
    const result = streamText({ ...options, model: openai.responses(model), messages });
    const parts = await all(result.stream);
    const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
    const results = parts.filter((part) => part.type === 'tool-result');
    const sources = (await result.sources).map((source) => source.filename);
    const messagesOut = (await result.response).messages;
    return {
      text: await result.text,
      errors,
      sources,
      outputs: results.map((part) => part.output),
      messages: messagesOut,
    };
  };
  const first = { role: 'user', content: 'Make a file.' };
  const one = await ask([first]);
  const two = await ask([first, ...one.messages, { role: 'user', content: 'Again?' }]);
  const { messages: _, ...shown } = one;
  return { ...shown, again: { text: two.text, errors: two.errors } };
}

await turn('stored', (model) => talk(model, true));
await turn('not-stored', (model) => talk(model, false));
tell();
