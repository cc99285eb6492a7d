// SPDX-License-Identifier: Apache-2.0
// Draws the panels of a dashboard with Grafana's own components, from answers of Prometheus. The page beside it (made by `draw`) holds both as
// `window.input`. When all is drawn, the body's data-report says of each panel whether it has failed and how much of its canvas is inked.
import { Component, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, type DataFrame, FieldType, getDisplayProcessor, LoadingState, ThemeContext, type TimeRange } from '@grafana/data';
import { BigValue, BigValueColorMode, BigValueGraphMode, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';

interface Series {
  refId: string;
  name: string;
  values: Array<[number, number]>;
}
interface Panel {
  id: number;
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: { defaults: Record<string, unknown> & { custom?: Record<string, unknown> }; overrides: Override[] };
  options: { legend?: never };
}
interface Override {
  matcher: { options: string };
  properties: Array<{ id: string; value: unknown }>;
}
declare global {
  interface Window {
    input: { panels: Panel[]; series: Record<string, Series[]>; from: number; to: number };
  }
}

const WIDTH = 1600;
const ROW = 38;
const GAP = 8;
const theme = createTheme({ colors: { mode: 'light' } });
const { panels, series, from, to } = window.input;
const range: TimeRange = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: dateTime(from * 1000), to: dateTime(to * 1000) } };
const failed: Record<number, string> = {};

function configOf(panel: Panel, name: string) {
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  const config: Record<string, unknown> & { custom: Record<string, unknown> } = { ...defaults, custom: { ...custom }, displayName: name };
  for (const override of panel.fieldConfig.overrides) {
    if (override.matcher.options !== name) continue;
    for (const { id, value } of override.properties) {
      if (id.startsWith('custom.')) config.custom[id.slice('custom.'.length)] = value;
      else config[id] = value;
    }
  }
  return config;
}

function framesOf(panel: Panel): DataFrame[] {
  return (series[panel.id] ?? []).map((one, index) => {
    const value = { name: one.name, type: FieldType.number, config: configOf(panel, one.name), values: one.values.map(([, v]) => v), state: { seriesIndex: index } };
    return {
      refId: one.refId,
      length: one.values.length,
      fields: [
        { name: 'time', type: FieldType.time, config: {}, values: one.values.map(([at]) => at * 1000) },
        { ...value, display: getDisplayProcessor({ field: value, theme }) },
      ],
    } as DataFrame;
  });
}

class Boundary extends Component<{ id: number; children: ReactNode }> {
  state = { error: '' };
  static getDerivedStateFromError(error: unknown) {
    return { error: String(error) };
  }
  render() {
    if (!this.state.error) return this.props.children;
    failed[this.props.id] = this.state.error;
    return <pre>{this.state.error}</pre>;
  }
}

function Inside({ panel, width, height }: { panel: Panel; width: number; height: number }) {
  const frames = framesOf(panel);
  if (frames.length === 0) return <div style={{ padding: 12, color: theme.colors.text.secondary }}>No data</div>;
  if (panel.type === 'stat') {
    const field = frames[0].fields[1];
    const last = field.values[field.values.length - 1];
    return (
      <BigValue
        value={field.display!(last)}
        width={width}
        height={height}
        theme={theme}
        colorMode={BigValueColorMode.Value}
        graphMode={BigValueGraphMode.Area}
        sparkline={{ y: field, x: frames[0].fields[0] }}
      />
    );
  }
  return <TimeSeries frames={frames} timeRange={range} timeZone="utc" width={width} height={height} legend={panel.options.legend!} />;
}

function Board() {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const [width, height] = [(w * WIDTH) / 24 - GAP, h * ROW - GAP];
        return (
          <div key={panel.id} id={`panel-${panel.id}`} style={{ position: 'absolute', left: (x * WIDTH) / 24, top: y * ROW, width, height }}>
            <PanelChrome title={panel.title} width={width} height={height} loadingState={LoadingState.Done}>
              {(innerWidth, innerHeight) => (
                <Boundary id={panel.id}>
                  <Inside panel={panel} width={innerWidth} height={innerHeight} />
                </Boundary>
              )}
            </PanelChrome>
          </div>
        );
      })}
    </ThemeContext.Provider>
  );
}

function ink(id: number): number {
  let inked = 0;
  for (const canvas of document.querySelectorAll<HTMLCanvasElement>(`#panel-${id} canvas`)) {
    const pixels = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < pixels.length; i += 4) if (pixels[i] > 0) inked += 1;
  }
  return inked;
}

createRoot(document.getElementById('board')!).render(<Board />);
setTimeout(() => {
  document.body.dataset.report = JSON.stringify(
    panels.map(({ id, title, type }) => ({ id, title, type, series: (series[id] ?? []).length, failed: failed[id] ?? '', ink: ink(id) }))
  );
}, 2000);
