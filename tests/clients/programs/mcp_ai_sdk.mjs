// The AI SDK with a hosted MCP server. Each turn asks for a model of its own name.
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText } from 'ai';

import { all, baseURL, tell, turn } from './report.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const openai = createOpenAI({ baseURL, apiKey: 'none' });
const desk = (requireApproval) => ({
  mcp: openai.tools.mcp({ serverLabel: 'desk', serverUrl: process.env.MCP_URL, requireApproval }),
});
const user = (content) => ({ role: 'user', content });

for (const store of [true, false]) {
  const providerOptions = { openai: { store } };
  const given = { maxRetries: 0, providerOptions };

  await turn(`never-${store}`, async (name) => {
    const model = openai.responses(name);
    const tools = desk('never');
    const first = streamText({ ...given, model, tools, prompt: 'What is 2 + 3?' });
    const parts = await all(first.stream);
    const errors = parts.filter((part) => part.type === 'error').map((part) => String(part.error));
    const messages = (await first.response).messages;
    const second = await generateText({
      ...given,
      model,
      tools,
      messages: [user('What is 2 + 3?'), ...messages, user('And again?')],
    });
    const results = parts.filter((part) => part.type === 'tool-result').map((part) => part.output);
    return { text: await first.text, errors, results, again: second.text };
  });

  await turn(`approved-${store}`, async (name) => {
    const model = openai.responses(name);
    const tools = desk('always');
    const messages = [user('What is 2 + 3?')];
    const first = await generateText({ ...given, model, tools, messages });
    messages.push(...first.response.messages);
    const asked = first.content.filter((part) => part.type === 'tool-approval-request');
    messages.push({
      role: 'tool',
      content: asked.map((part) => ({
        type: 'tool-approval-response',
        approvalId: part.approvalId,
        approved: true,
      })),
    });
    const second = await generateText({ ...given, model, tools, messages });
    return { asked: asked.length, text: second.text };
  });
}

tell();
