// SPDX-License-Identifier: Apache-2.0
// What a dashboard of ours is, from the types that Grafana publishes. `dashboards/check` appends the JSON and compiles the whole.
import type { Dashboard, DataQuery, Panel, VariableModel } from '@grafana/schema';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON holds the values of Grafana's string enumerations, not their names.
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

// @grafana/schema leaves the queries of a data source open. These are the fields of Grafana's Prometheus query that our panels use.
interface PrometheusQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  range?: boolean;
  instant?: boolean;
  format?: 'time_series' | 'table';
  editorMode?: 'code' | 'builder';
}

// Panels are `Panel` with the options and field settings of their own kind, so that a misspelt option is an error, too.
type Of<Kind extends string, Options, Custom> = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Kind;
  targets: PrometheusQuery[];
  options: Options;
  fieldConfig: Omit<NonNullable<Panel['fieldConfig']>, 'defaults'> & {
    defaults: Omit<NonNullable<Panel['fieldConfig']>['defaults'], 'custom'> & { custom?: Custom };
  };
};

type Checked = Plain<
  Omit<Dashboard, 'panels' | 'templating' | 'annotations'> & {
    templating: { list: VariableModel[] };
    annotations: { list: (NonNullable<NonNullable<Dashboard['annotations']>['list']>[number] & { expr?: string; titleFormat?: string })[] };
    panels: (Of<'timeseries', timeseries.Options, timeseries.FieldConfig> | Of<'stat', stat.Options, never> | Of<'table', table.Options, table.FieldConfig>)[];
  }
>;

